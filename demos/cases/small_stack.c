// First calls on stacks of 16 KiB: a thread's, a makecontext's, a signal's.
// flags: -pthread
// gate: D
// hazard: signals
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 16384 };

#define FUNCTION(name)                                                       \
  __attribute__((noinline)) static double name##_inner(int x, double y) {    \
    __asm__ volatile("" : "+r"(x));                                          \
    return x * y;                                                            \
  }                                                                          \
  __attribute__((noinline)) static int name(int x) {                         \
    volatile char frame[512];                                                \
    frame[x & 511] = (char)x;                                                \
    return (int)name##_inner(x, 2.5) + frame[x & 511];                       \
  }
FUNCTION(in_thread)
FUNCTION(in_context)
FUNCTION(in_handler)

/* A stack between pages that fault: an overflow cannot go unnoticed. */
static char *guarded(void) {
  char *p = mmap(NULL, STACK + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(p + 4096, STACK, PROT_READ | PROT_WRITE);
  return p + 4096;
}

static void *thread(void *arg) {
  *(int *)arg = in_thread(10);
  return NULL;
}

static ucontext_t home, away;
static int context_result;
static void context(void) { context_result = in_context(20); }

static volatile int handler_result;
static void handler(int signal) { handler_result = in_handler(signal); }

int main(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, guarded(), STACK);
  pthread_t id;
  int result = 0;
  if (pthread_create(&id, &attributes, thread, &result)) return 1;
  pthread_join(id, NULL);
  printf("thread %d\n", result);

  getcontext(&away);
  away.uc_stack.ss_sp = guarded();
  away.uc_stack.ss_size = STACK;
  away.uc_link = &home;
  makecontext(&away, context, 0);
  swapcontext(&home, &away);
  printf("context %d\n", context_result);

  stack_t stack = {.ss_sp = guarded(), .ss_size = STACK};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  printf("handler %d\n", handler_result);
}
