// Fibers by makecontext and swapcontext, each calling new functions.
// gate: D
// hazard: stacks
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { FIBERS = 8, STACK = 65536 };
static ucontext_t home, fiber[FIBERS];
static int turn, log_length, done;
static char log_text[4096];

#define DEFINE(n)                                                            \
  __attribute__((noinline)) static int step##n(int x) { return x * 2 + n; }  \
  static void body##n(void) {                                                \
    double kept = n * 1.5;                                                   \
    for (int i = 0; i < 3; i++) {                                            \
      log_length += sprintf(log_text + log_length, "%d:%d ", n, step##n(i)); \
      swapcontext(&fiber[n], &home);                                         \
    }                                                                        \
    log_length += sprintf(log_text + log_length, "%d done %g ", n, kept);    \
    done++;                                                                  \
  }
DEFINE(0) DEFINE(1) DEFINE(2) DEFINE(3) DEFINE(4) DEFINE(5) DEFINE(6) DEFINE(7)
static void (*const bodies[])(void) = {body0, body1, body2, body3, body4, body5, body6, body7};

int main(void) {
  for (int i = 0; i < FIBERS; i++) {
    getcontext(&fiber[i]);
    fiber[i].uc_stack.ss_sp = malloc(STACK);
    fiber[i].uc_stack.ss_size = STACK;
    fiber[i].uc_link = &home;
    makecontext(&fiber[i], bodies[i], 0);
  }
  for (int round = 0; round < 4; round++)
    for (turn = 0; turn < FIBERS; turn++) swapcontext(&home, &fiber[turn]);
  printf("%s\n%d\n", log_text, done);
}
