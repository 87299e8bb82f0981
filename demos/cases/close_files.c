// Daemons close all files and set limits: what is called afterwards still compiles, and what is
// opened afterwards, under the numbers of what was closed, stays open.
// gate: D
#define _GNU_SOURCE
#include <fcntl.h>
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

/* Our files, while those of whoever else lives here come and go. */
static int kept(void) {
  int ends[2], kept = 0;
  for (int round = 0; round < 500; round++) {
    char byte = 0;
    for (int i = 3; i < 128; i++) close(i);
    if (pipe(ends)) return -1;
    kept += f0(round) && write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x';
  }
  return kept;
}

int main(void) {
  printf("%d\n", f0(1));
  for (int i = 3; i < 4096; i++) close(i);
  printf("%d\n", f1(1));
  printf("%d\n", kept());
  struct rlimit none = {3, 3};
  printf("%d\n", setrlimit(RLIMIT_NOFILE, &none));
  printf("%d\n", f2(1));
  fflush(stdout);
  /* Output is a file: raise the limit to zero only when all is written. */
  struct rlimit empty = {0, 0};
  setrlimit(RLIMIT_FSIZE, &empty);
  return f3(1) == 2 + '3' ? 0 : 1;
}
