// A program that blocks all signals and takes what is pending, in each of the ways there are,
// finds none that it did not send.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "parts/churn.h"

static atomic_long found;

static void note(const char *how, int s) {
  if (found++ < 5) printf("%s found signal %d\n", how, s);
}

static void *taker(void *arg) {
  int files = signalfd(-1, arg, SFD_NONBLOCK);
  while (!churn_stop) {
    sigset_t all, before, pending;
    sigfillset(&all);
    churn_round(2000);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    sigpending(&pending);
    for (int s = 1; s < 65; s++)
      if (sigismember(&pending, s)) note("sigpending", s);
    struct signalfd_siginfo data;
    if (read(files, &data, sizeof data) > 0) note("signalfd", data.ssi_signo);
    struct timespec none = {0, 0};
    siginfo_t info;
    int s = sigtimedwait(&all, &info, &none);
    if (s > 0) note("sigtimedwait", s);
    churn_round(500);
    s = sigtimedwait(&all, NULL, &none);
    if (s > 0) note("sigtimedwait", s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
  close(files);
  return NULL;
}

int main(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_t thread[3];
  for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, taker, &all);
  for (int i = 0; i < 64; i++) {
    call_fresh(i, 1);
    churn_round(400000);
  }
  churn_stop = 1;
  for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
  printf("found %ld\n", found);
}
