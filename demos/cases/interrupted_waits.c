// Calls that wait without a mask of signals do not end with EINTR, also those made by
// `syscall` and those of glibc that load an argument after the call's number.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "parts/churn.h"

static atomic_long interrupted[6];

static void *waiter(void *arg) {
  (void)arg;
  int epoll = epoll_create1(0);
  struct timespec time = {0, 20000};
  for (unsigned i = 0; !churn_stop; i++) {
    churn_round(i * 7919 % 3000);
    struct epoll_event event;
    int result = 0, kind = i % 6;
    switch (kind) {
      case 0: result = pselect(0, NULL, NULL, NULL, &time, NULL); break;
      case 1: result = syscall(SYS_poll, NULL, 0, 1); break;
      case 2: result = epoll_pwait(epoll, &event, 1, 1, NULL); break;
      case 3: result = syscall(SYS_nanosleep, &time, NULL); break;
      case 4: result = poll(NULL, 0, 1); break;
      case 5: result = ppoll(NULL, 0, &time, NULL); break;
    }
    if (result) interrupted[kind]++;
  }
  close(epoll);
  return NULL;
}

int main(void) {
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, waiter, NULL);
  for (int i = 0; i < 64; i++) {
    call_fresh(i, 1);
    usleep(15000);
  }
  churn_stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < 6; i++) printf("%d: %ld\n", i, interrupted[i]);
}
