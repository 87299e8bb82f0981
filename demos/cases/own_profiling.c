// A program with a profiler of its own: SIGPROF by setitimer, a timer of its own on a
// thread's clock, and real-time signals. It gets its signals, all of them and no others.
// flags: -pthread
// levels: O1-no-passes
// modes: lazy
// options: -vv
// vary: --sampling timers
// log: Published .. "hot" .. tier: Optimized
#include "parts/hot.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t profiled, queued, other, clobbered;

static void on_signal(int signal) {
  int before = errno;
  if (signal == SIGPROF) profiled++;
  else if (signal == SIGRTMIN + 3) queued++;
  else other++;
  errno = before;
}

int main(void) {
  struct sigaction action, found;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGPROF, &action, &found);
  printf("%d", found.sa_handler == SIG_DFL);
  for (int s = SIGRTMIN; s < SIGRTMIN + 8; s++) {
    sigaction(s, &action, &found);
    printf("%d", found.sa_handler == SIG_DFL);
  }
  struct itimerval every = {{0, 10000}, {0, 10000}}, was;
  setitimer(ITIMER_PROF, &every, &was);
  printf(" %ld\n", was.it_value.tv_usec);

  union sigval value = {.sival_int = 5};
  unsigned result = keep_hot(300);
  for (int i = 0; i < 100; i++) {
    errno = 77;
    sigqueue(getpid(), SIGRTMIN + 3, value);
    result ^= keep_hot(5);
    result ^= hot(1);
    clobbered += errno != 77 && errno != EINTR;
  }
  memset(&every, 0, sizeof every);
  setitimer(ITIMER_PROF, &every, NULL);
  sigaction(SIGPROF, NULL, &found);
  printf("%d %d %d %d\n", profiled > 10, (int)queued, (int)other, (int)clobbered);
  printf("%d %u\n", found.sa_handler == on_signal, result);
}
