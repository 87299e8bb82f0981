// A loop whose rounds are promised not to share memory, while its sum is a variable whose address
// escapes behind it: where the loop is left for other code, the sum stays memory.
#include <stdio.h>

static double numbers[1000000];

__attribute__((noinline)) void add(double *to, const double *sum) { *to += *sum; }

__attribute__((noinline)) void all(double *to, int round) {
  double sum = 0;
#pragma clang loop vectorize(assume_safety)
  for (int i = 0; i < 1000000; i++) {
    numbers[i] = i * 0.5 + round;
    sum += (long)numbers[i];
  }
  add(to, &sum);
}

int main(void) {
  double sum = 0;
  for (int round = 0; round < 20; round++)
    all(&sum, round);
  printf("%.0f\n", sum);
  return 0;
}
