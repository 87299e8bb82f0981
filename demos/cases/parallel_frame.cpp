// Loops whose rounds are promised not to share memory, while their sum is a variable whose address
// escapes behind the loop, and that they may reach by a reference: where such a loop is left for
// other code, the sum stays memory.
#include <cstdio>

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

__attribute__((noinline)) void by_reference(double *to, int round) {
  double sum = 0;
  double &total = sum;
#pragma clang loop vectorize(assume_safety)
  for (int i = 0; i < 1000000; i++) {
    numbers[i] = i * 0.5 + round;
    total += (long)numbers[i];
  }
  add(to, &sum);
}

int main() {
  double sums[2] = {0, 0};
  for (int round = 0; round < 20; round++) {
    all(&sums[0], round);
    by_reference(&sums[1], round);
  }
  std::printf("%.0f %.0f\n", sums[0], sums[1]);
}
