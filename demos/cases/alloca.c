// Stack memory of a size known at run time, over-aligned locals, large frames.
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) static unsigned fill(unsigned char *p, unsigned n) {
  memset(p, (int)n, n);
  unsigned sum = 0;
  for (unsigned i = 0; i < n; i++) sum += p[i];
  return sum;
}

__attribute__((noinline)) static unsigned with_alloca(unsigned n) {
  unsigned total = 0;
  for (unsigned i = 1; i <= n; i++) total += fill(alloca(i), i);
  return total;
}

__attribute__((noinline)) static unsigned with_vla(unsigned n) {
  unsigned char table[n][n + 1];
  for (unsigned i = 0; i < n; i++) fill(table[i], n);
  return table[n - 1][n - 1] + (unsigned)sizeof table;
}

__attribute__((noinline)) static int aligned(unsigned n) {
  _Alignas(128) unsigned char wide[128];
  unsigned char *p = alloca(n);
  fill(wide, 128);
  fill(p, n);
  return ((uintptr_t)wide % 128 == 0) + p[n - 1];
}

__attribute__((noinline)) static int large(void) {
  volatile unsigned char frame[300000];
  for (unsigned i = 0; i < sizeof frame; i += 4096) frame[i] = (unsigned char)(i >> 12);
  return frame[4096 * 70];
}

int main(void) {
  printf("%u %u %d %d\n", with_alloca(100), with_vla(40), aligned(17), large());
}
