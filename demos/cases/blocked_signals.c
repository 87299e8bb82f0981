// Threads that block every signal, and one that waits for every signal: they get none
// of the runtime's, run on correctly, and the runtime says that they are not sampled.
// flags: -pthread
// levels: O1-no-passes
// modes: lazy
// options: -vv --sampling timers
// log: sampling .. source .. timers
// log: not sampled: blocked signals or a limit
// log: Published .. "hot" .. tier: Optimized
// hazard: signals
#define _GNU_SOURCE
#include "parts/hot.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void *blocked(void *arg) {
  sigset_t all, pending;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  *(unsigned *)arg = keep_hot(900);
  sigpending(&pending);
  int any = 0;
  for (int s = 1; s <= SIGRTMAX; s++) any += sigismember(&pending, s) == 1;
  return (void *)(long)any;
}

/* Waits for all signals; the first and last is SIGUSR1, sent at the end. */
static void *waiting(void *arg) {
  sigset_t all;
  sigfillset(&all);
  int signal = 0;
  sigwait(&all, &signal);
  *(unsigned *)arg = (unsigned)signal;
  return NULL;
}

int main(void) {
  pthread_t threads[3];
  unsigned results[3];
  sigset_t all;
  sigfillset(&all);
  void *any[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, blocked, &results[i]);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  pthread_create(&threads[2], NULL, waiting, &results[2]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], &any[i]);
  pthread_kill(threads[2], SIGUSR1);
  pthread_join(threads[2], NULL);
  printf("%u %u %ld %ld %u\n", results[0], results[1], (long)any[0], (long)any[1], results[2]);
}
