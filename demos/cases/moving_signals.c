// Handlers on alternate stacks, nested, interrupt functions that are compiled again, moved
// and freed before the handlers return.
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <signal.h>
#include <unistd.h>
#include "parts/fresh.h"

static int handled;

__attribute__((noinline)) static void inner(int signal) {
  (void)signal;
  call_fresh(handled * 2, 1);
  usleep(20000);
  call_fresh(handled * 2 + 1, 1);
  handled++;
}

__attribute__((noinline)) static void outer(int signal) {
  (void)signal;
  raise(SIGUSR2);
  usleep(5000);
}

__attribute__((noinline)) static long interrupted(long n) {
  long sum = 0;
  for (long i = 0; i < n; i++) {
    sum += i ^ (sum >> 3);
    if (i % 1000 == 500) raise(SIGUSR1);
  }
  return sum;
}

int main(void) {
  stack_t stack = {.ss_sp = malloc(1 << 17), .ss_size = 1 << 17};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_handler = outer, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  action.sa_handler = inner;
  sigaction(SIGUSR2, &action, NULL);
  long sum = interrupted(30000);
  printf("%ld %d\n", sum, handled);
}
