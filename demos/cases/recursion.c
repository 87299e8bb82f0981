// Fifty functions, each called for the first time by the one before, all waiting on
// the same stack; then deep plain recursion.
// gate: B
#include <stdio.h>

#define NEXT(a, b)                                                             \
  __attribute__((noinline)) static int f##a(int x) {                           \
    int keep[8];                                                               \
    for (int i = 0; i < 8; i++) keep[i] = x + i;                               \
    __asm__ volatile("" : : "r"(keep) : "memory");                             \
    return f##b(x + 1) + keep[x & 7];                                          \
  }
__attribute__((noinline)) static int f50(int x) { return x; }
#define TEN(a, b, c, d, e, f, g, h, i, j, k) \
  NEXT(a, b) NEXT(c, a) NEXT(d, c) NEXT(e, d) NEXT(f, e) NEXT(g, f) NEXT(h, g) NEXT(i, h) NEXT(j, i) NEXT(k, j)
TEN(49, 50, 48, 47, 46, 45, 44, 43, 42, 41, 40)
TEN(39, 40, 38, 37, 36, 35, 34, 33, 32, 31, 30)
TEN(29, 30, 28, 27, 26, 25, 24, 23, 22, 21, 20)
TEN(19, 20, 18, 17, 16, 15, 14, 13, 12, 11, 10)
TEN(9, 10, 8, 7, 6, 5, 4, 3, 2, 1, 0)

__attribute__((noinline)) static long deep(long n) {
  volatile long here = n;
  return n ? deep(n - 1) + (here & 1) : 0;
}

int main(void) {
  printf("%d\n", f0(1));
  printf("%ld\n", deep(60000));
}
