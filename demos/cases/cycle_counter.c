// A program that forbids itself to read the processor's cycle counter, as one does that must not measure
// time. Code that counts passes of loops, calls compiled later, and scans of stacks do not read it, either.
#include <stdio.h>
#include <sys/prctl.h>

__attribute__((noinline)) static unsigned mix(unsigned x, int n) {
  for (int i = 0; i < n; i++) x = x * 1664525u + 1013904223u + (x >> 7);
  return x;
}

__attribute__((noinline)) static unsigned turn(unsigned x, int n) {
  for (int i = 0; i < n; i++) x = (x << 3 | x >> 29) + 12345u;
  return x;
}

int main(void) {
  unsigned x = mix(1, 1000);
  if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) return 1;
  for (int i = 0; i < 5000; i++) {
    x = mix(x, 10000);
    x = turn(x, 10000);
  }
  if (prctl(PR_SET_TSC, PR_TSC_ENABLE) != 0) return 2;
  printf("%u\n", x);
  return 0;
}
