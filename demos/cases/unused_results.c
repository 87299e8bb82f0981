// Results nobody wants are still computed by code that was not optimized: whoever calls it
// must not take from an optimized body that it needs no argument and reads no memory.
#include <stdio.h>
#include <unistd.h>

static int calls;

__attribute__((noinline)) static void far(void) { calls += getpid() > 0; }

#define TIMES_8(x) x x x x x x x x

/* Too large to be inlined. */
static int divides(const int *divisor, int dividend) {
  int unused = dividend / *divisor;
  (void)unused;
  TIMES_8(TIMES_8(far();))
  return 7;
}

static int reads(int *const *pointer) {
  int unused = **pointer;
  (void)unused;
  TIMES_8(TIMES_8(far();))
  return 8;
}

int main(int argc, char **argv) {
  (void)argv;
  int sum = 0;
  for (int i = 0; i < 30; i++) {
    for (int j = 0; j < 3; j++) {
      int divisor = 5, *pointer = &divisor;
      sum += divides(&divisor, argc) + reads(&pointer);
    }
  }
  printf("%d %d\n", sum, calls);
}
