// A program that handles every signal gets those it sent, each with its own data, and no
// other; what it asks about its handlers is what it said.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "parts/churn.h"

static atomic_long got[65], foreign;
static _Thread_local volatile int inside;

static void handler(int s, siginfo_t *info, void *context) {
  (void)context;
  if (info->si_code != SI_TKILL || info->si_pid != getpid()) foreign++;
  inside++;
  got[s]++;
}

static void plain(int s) { got[s]++; }

static int skipped(int s) {
  return s == SIGKILL || s == SIGSTOP || s == 32 || s == 33 || s == SIGSEGV || s == SIGBUS ||
         s == SIGILL || s == SIGFPE || s == SIGTRAP;
}

int main(void) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaddset(&action.sa_mask, SIGUSR1);
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, churn, NULL);
  long sent = 0, wrong = 0;
  for (int i = 0; i < 64; i++) {
    for (int s = 1; s < 65; s++) {
      if (skipped(s)) continue;
      struct sigaction old;
      sigaction(s, &action, &old);
      if (i && old.sa_handler != plain) wrong++;
      sigaction(s, NULL, &old);
      if (old.sa_sigaction != handler || !(old.sa_flags & SA_SIGINFO) ||
          !sigismember(&old.sa_mask, SIGUSR1) || sigismember(&old.sa_mask, SIGUSR2))
        wrong++;
      raise(s);
      if (signal(s, plain) != (void (*)(int))handler) wrong++;
      raise(s);
      sent += 2;
    }
    call_fresh(i, 1);
    churn_round(100000);
  }
  churn_stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  long sum = 0;
  for (int s = 1; s < 65; s++) {
    if (got[s] != (skipped(s) ? 0 : 128)) printf("signal %d came %ld times\n", s, got[s]);
    sum += got[s];
  }
  printf("sent %ld got %ld foreign %ld wrong %ld\n", sent, sum, foreign, wrong);
}
