// Function multi-versioning: the compiler emits an ifunc and asks its runtime about
// the CPU.
// gate: D
#include <stdio.h>

__attribute__((target_clones("avx2", "sse4.2", "default"))) int sum(const int *p, int n) {
  int total = 0;
  for (int i = 0; i < n; i++) total += p[i] * i;
  return total;
}

__attribute__((target("default"))) static int which(void) { return 0; }
__attribute__((target("avx2"))) static int which(void) { return 1; }

int main(void) {
  int numbers[100];
  for (int i = 0; i < 100; i++) numbers[i] = i ^ 5;
  __builtin_cpu_init();
  printf("%d\n", sum(numbers, 100));
  printf("%d\n", which() == !!__builtin_cpu_supports("avx2"));
}
