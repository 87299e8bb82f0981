// Large data and far calls: the medium code model.
// flags: -mcmodel=medium
// gate: E
#include <stdio.h>
#include <string.h>

static char large[200000];
static long table[50000] = {1, 2, 3};
int small = 5;

__attribute__((noinline)) static long sum(int n) {
  long total = 0;
  for (int i = 0; i < n; i++) total += table[i] + large[i];
  return total;
}

int main(void) {
  memset(large, 1, sizeof large);
  long (*volatile f)(int) = sum;
  printf("%ld %d\n", f(50000), small);
}
