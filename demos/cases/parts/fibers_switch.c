// Fibers by a function in assembly, as Boost.Context has one: it keeps registers on the
// stack that is left, and the stack pointer in the context.
#include "fibers.h"
#include <stdlib.h>

enum { STACK = 65536 };
static void *home, *fibers[FIBERS];
static fiber_body *bodies[FIBERS];
static int next;

void fibers_switch(void **from, void *to);
__asm__(".text\n.type fibers_switch,@function\nfibers_switch:\n"
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n"
        ".size fibers_switch,.-fibers_switch\n");

static void first(void) {
  int fiber = next;
  bodies[fiber](fiber);
  for (;;) fiber_rest(fiber);
}

void fiber_make(int fiber, fiber_body *body) {
  bodies[fiber] = body;
  void **top = (void **)((char *)aligned_alloc(16, STACK) + STACK);
  *--top = 0;
  *--top = (void *)first;
  for (int i = 0; i < 6; i++) *--top = 0;
  fibers[fiber] = top;
}

void fiber_go(int fiber) {
  next = fiber;
  fibers_switch(&home, fibers[fiber]);
}

void fiber_rest(int fiber) { fibers_switch(&fibers[fiber], home); }
