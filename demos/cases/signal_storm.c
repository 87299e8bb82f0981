// A timer interrupts a program that lives in malloc; the handler's first calls of
// ever new functions must not touch what it interrupted.
// gate: D
// timeout: 90
// hazard: signals
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define ALL(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3) ROW(X, 4) ROW(X, 5) ROW(X, 6) ROW(X, 7)
#define DEFINE(n) \
  __attribute__((noinline)) static void f##n(volatile unsigned *p) { *p = *p * 31 + 0x##n; }
#define ADDRESS(n) f##n,
ALL(DEFINE)
static void (*const functions[])(volatile unsigned *) = {ALL(ADDRESS)};
enum { COUNT = sizeof functions / sizeof *functions };

static volatile sig_atomic_t next;
static volatile unsigned hash;

static void tick(int signal) {
  (void)signal;
  if (next < COUNT) functions[next++](&hash);
}

/* Touches malloc on its own first call, too. */
#define WORK(n)                                     \
  __attribute__((noinline)) static void w##n(void) { \
    char *p = malloc(100 + 0x##n * 37);             \
    memset(p, 0x##n, 100);                          \
    char *q = realloc(p, 10000);                    \
    if (q[99] != (char)0x##n) abort();              \
    free(q);                                        \
  }
ALL(WORK)
#define WORK_ADDRESS(n) w##n,
static void (*const work[])(void) = {ALL(WORK_ADDRESS)};

int main(void) {
  signal(SIGALRM, tick);
  struct itimerval interval = {{0, 700}, {0, 700}};
  setitimer(ITIMER_REAL, &interval, NULL);
  long rounds = 0;
  while (next < COUNT || rounds < COUNT) {
    work[rounds % COUNT]();
    rounds++;
  }
  interval = (struct itimerval){{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &interval, NULL);
  unsigned expected = 0;
  for (int i = 0; i < COUNT; i++) functions[i](&expected);
  printf("%d %d\n", (int)next, hash == expected);
}
