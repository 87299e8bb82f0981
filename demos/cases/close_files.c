// Daemons close all files and set limits: what is called afterwards still compiles.
// gate: D
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEFINE(n)                                                 \
  __attribute__((noinline)) static int f##n(int x) {              \
    static const char *const text[] = {"a" #n, "b" #n};           \
    __asm__ volatile("" : "+r"(x));                               \
    return x * 2 + text[x & 1][1];                                \
  }
DEFINE(0) DEFINE(1) DEFINE(2) DEFINE(3)

int main(void) {
  printf("%d\n", f0(1));
  for (int i = 3; i < 4096; i++) close(i);
  printf("%d\n", f1(1));
  struct rlimit none = {3, 3};
  printf("%d\n", setrlimit(RLIMIT_NOFILE, &none));
  printf("%d\n", f2(1));
  fflush(stdout);
  /* Output is a file: raise the limit to zero only when all is written. */
  struct rlimit empty = {0, 0};
  setrlimit(RLIMIT_FSIZE, &empty);
  return f3(1) == 2 + '3' ? 0 : 1;
}
