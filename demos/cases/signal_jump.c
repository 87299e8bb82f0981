// A handler leaves by siglongjmp, often out of a first call that waits for its
// function; whoever comes later still gets the function.
// gate: D
// timeout: 90
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

#define ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define ALL(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3) ROW(X, 4) ROW(X, 5) ROW(X, 6) ROW(X, 7)
#define DEFINE(n)                                                        \
  __attribute__((noinline)) static int f##n(int x) {                     \
    static const char text[] = "f" #n;                                   \
    __asm__ volatile("" : "+r"(x));                                      \
    switch (x & 7) {                                                     \
      case 0: return x + text[0]; case 1: return x * 3; case 2: return -x; \
      case 3: return x ^ 0x##n; case 4: return x | 1; default: return x + 0x##n; } }
#define ADDRESS(n) f##n,
ALL(DEFINE)
static int (*const functions[])(int) = {ALL(ADDRESS)};
enum { COUNT = sizeof functions / sizeof *functions };

static sigjmp_buf out;
static volatile sig_atomic_t armed;
static volatile int jumps;

static void tick(int signal) {
  (void)signal;
  if (armed) {
    armed = 0;
    jumps++;
    siglongjmp(out, 1);
  }
}

int main(void) {
  signal(SIGALRM, tick);
  struct itimerval interval = {{0, 300}, {0, 300}};
  setitimer(ITIMER_REAL, &interval, NULL);
  for (volatile int round = 0; round < 40; round++) {
    for (volatile int i = 0; i < COUNT; i++) {
      if (sigsetjmp(out, 1) == 0) {
        armed = 1;
        functions[i](i);
        armed = 0;
      }
    }
  }
  while (jumps == 0) {
    if (sigsetjmp(out, 1) == 0) { armed = 1; for (;;) functions[0](1); }
  }
  interval = (struct itimerval){{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &interval, NULL);
  armed = 0;
  long sum = 0;
  for (int i = 0; i < COUNT; i++) sum = sum * 7 + functions[i](i * 5 + 3);
  printf("%ld %d\n", sum, jumps > 0);
}
