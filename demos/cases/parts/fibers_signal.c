// Fibers on alternate signal stacks: a handler saves a context there and returns, and
// `siglongjmp` goes back to it later, as Engelschall's portable threads have it.
#include "fibers.h"
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

enum { STACK = 65536 };
static sigjmp_buf home, fibers[FIBERS];
static fiber_body *bodies[FIBERS];
static volatile int made;

static void first(int signal) {
  (void)signal;
  int fiber = made;
  if (sigsetjmp(fibers[fiber], 0) == 0) return;
  // A frame of its own: the handler's was left.
  bodies[fiber](fiber);
  siglongjmp(home, 1);
}

void fiber_make(int fiber, fiber_body *body) {
  bodies[fiber] = body;
  made = fiber;
  stack_t stack = {.ss_sp = malloc(STACK), .ss_size = STACK}, old;
  struct sigaction action = {.sa_handler = first, .sa_flags = SA_ONSTACK}, before;
  sigaltstack(&stack, &old);
  sigaction(SIGUSR1, &action, &before);
  raise(SIGUSR1);
  sigaction(SIGUSR1, &before, 0);
  sigaltstack(&old, 0);
}

void fiber_go(int fiber) {
  if (sigsetjmp(home, 0) == 0) siglongjmp(fibers[fiber], 1);
}

void fiber_rest(int fiber) {
  if (sigsetjmp(fibers[fiber], 0) == 0) siglongjmp(home, 1);
}
