// A loop that catches what a function throws, which natively is known to throw nothing.
//
//     -DTHROWS   it throws
#include <cstdio>

long calls;

extern "C" __attribute__((noinline)) long careful(int x) {
  calls++;
#ifdef THROWS
  if (x) throw 5;
#endif
  return x + calls * 0;
}

int main() {
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    try {
      printf("%ld\n", careful(line[0] == 'e'));
    } catch (int number) {
      printf("caught %d\n", number);
    }
    fflush(stdout);
  }
}
