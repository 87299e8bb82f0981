// Fibers by the C library's contexts.
#include "fibers.h"
#include <stdlib.h>
#include <ucontext.h>

enum { STACK = 65536 };
static ucontext_t home, fibers[FIBERS];
static fiber_body *bodies[FIBERS];

static void first(int fiber) { bodies[fiber](fiber); }

void fiber_make(int fiber, fiber_body *body) {
  bodies[fiber] = body;
  getcontext(&fibers[fiber]);
  fibers[fiber].uc_stack.ss_sp = malloc(STACK);
  fibers[fiber].uc_stack.ss_size = STACK;
  fibers[fiber].uc_link = &home;
  makecontext(&fibers[fiber], (void (*)(void))first, 1, fiber);
}

void fiber_go(int fiber) { swapcontext(&home, &fibers[fiber]); }

void fiber_rest(int fiber) { swapcontext(&fibers[fiber], &home); }
