// Threads with alternate stacks of 2,048 bytes, the smallest the kernel takes: less than it
// needs for a signal where vector registers are wide. No signal of the program's comes, so
// natively nobody ever finds out.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "parts/churn.h"

static _Thread_local char large[65536];

/* Right above a page that cannot be written. */
static char *make_small(void) {
  char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(at, 4096, PROT_NONE);
  return at + 4096;
}

static void set(char *at, size_t size) {
  stack_t stack = {.ss_sp = at, .ss_size = size}, now;
  if (sigaltstack(&stack, NULL) || sigaltstack(NULL, &now) || now.ss_sp != at || now.ss_size != size)
    puts("sigaltstack failed");
}

static void *runner(void *arg) {
  char *small = make_small();
  while (!churn_stop) {
    set(small, 2048);
    churn_round(30000);
    set(large, sizeof large);
    churn_round(30000);
  }
  return arg;
}

static void *steady(void *arg) {
  set(make_small(), 2048);
  return churn(arg);
}

int main(void) {
  pthread_t thread[3];
  for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, i ? runner : steady, NULL);
  set(make_small(), 2048);
  for (int i = 0; i < 64; i++) {
    call_fresh(i, 1);
    churn_round(100000);
  }
  pid_t child = fork();
  if (!child) {
    for (int i = 0; i < 64; i++) {
      call_fresh(i, 1);
      churn_round(100000);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  churn_stop = 1;
  for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
  printf("child %d\n", status);
}
