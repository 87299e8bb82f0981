// The stack overflows, more than once, at ever other depths of first calls; a handler on
// its own stack leaves by siglongjmp and the program goes on.
// gate: D
// hazard: stacks
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static sigjmp_buf out;
static volatile int overflows;
static void handler(int signal) {
  (void)signal;
  overflows++;
  siglongjmp(out, 1);
}

#define ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define ALL(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3)
#define DEFINE(n)                                                        \
  __attribute__((noinline)) static int leaf##n(int x) {                  \
    __asm__ volatile("" : "+r"(x));                                      \
    return x + 0x##n;                                                    \
  }
ALL(DEFINE)
#define ADDRESS(n) leaf##n,
static int (*const leaves[])(int) = {ALL(ADDRESS)};
enum { COUNT = sizeof leaves / sizeof *leaves };

/* Every round calls one new leaf at the deepest point it can reach. */
__attribute__((noinline)) static int dive(int depth, int which) {
  volatile char frame[2000];
  frame[depth % 2000] = 1;
  if (depth % 50 == which % 50 && depth > 3000) leaves[which](depth);
  return dive(depth + 1, which) + frame[depth % 2000];
}

int main(void) {
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGSEGV, &action, NULL);
  for (volatile int i = 0; i < COUNT; i++)
    if (sigsetjmp(out, 1) == 0) dive(0, i);
  int sum = 0;
  for (int i = 0; i < COUNT; i++) sum += leaves[i](1);
  printf("%d %d\n", overflows, sum);
}
