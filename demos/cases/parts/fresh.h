// 64 functions that nobody called yet: each first call makes others move.
#include <stdio.h>
#include <stdlib.h>
#define FRESH_ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define FRESH_ALL(X)                                                         \
  FRESH_ROW(X, 0) FRESH_ROW(X, 1) FRESH_ROW(X, 2) FRESH_ROW(X, 3)            \
  FRESH_ROW(X, 4) FRESH_ROW(X, 5) FRESH_ROW(X, 6) FRESH_ROW(X, 7)
#define FRESH_DEFINE(n)                                                      \
  __attribute__((noinline)) static int fresh##n(int x) {                     \
    __asm__ volatile("" : "+r"(x));                                          \
    return x * 3 + 0##n;                                                     \
  }
FRESH_ALL(FRESH_DEFINE)
#define FRESH_ADDRESS(n) fresh##n,
#define FRESH_NUMBER(n) 0##n,
static int (*const fresh[])(int) = {FRESH_ALL(FRESH_ADDRESS)};
static const int fresh_number[] = {FRESH_ALL(FRESH_NUMBER)};

/* Calls `count` of them from `first` on. */
__attribute__((noinline, unused)) static void call_fresh(int first, int count) {
  for (int i = first; i < first + count; i++)
    if (fresh[i](i) != i * 3 + fresh_number[i]) {
      printf("fresh %d is wrong\n", i);
      exit(1);
    }
}
