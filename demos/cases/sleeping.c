// System calls that wait are not interrupted while their threads are sampled and the
// functions around them get better code: no EINTR, no early end.
// flags: -pthread
// levels: O1-no-passes
// modes: lazy
// options: -vv
// vary: --sampling timers
// log: sampling .. source
// log: Published .. "hot" .. tier: Optimized
#define _GNU_SOURCE
#include "parts/hot.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static sem_t never;
static int silent[2];

/* Each waits a millisecond; returns whether it was cut short. */
static int by_poll(void) {
  struct pollfd fd = {.fd = silent[0], .events = POLLIN};
  return poll(&fd, 1, 1) != 0;
}
static int by_nanosleep(void) {
  struct timespec pause = {0, 300000};
  return nanosleep(&pause, NULL) != 0;
}
static int by_semaphore(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  return sem_timedwait(&never, &until) == 0 || errno != ETIMEDOUT;
}
static int by_select(void) {
  struct timeval pause = {0, 500};
  return select(0, NULL, NULL, NULL, &pause) != 0;
}
static int by_epoll(void) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event;
  int cut = epoll_wait(epoll, &event, 1, 1) != 0;
  close(epoll);
  return cut;
}
static int by_sigwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  struct timespec pause = {0, 500000};
  return sigtimedwait(&set, NULL, &pause) != -1 || errno != EAGAIN;
}
static int (*const ways[])(void) = {by_poll, by_nanosleep, by_semaphore, by_select, by_epoll, by_sigwait};

static void *sleeper(void *arg) {
  int cut = 0;
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (unsigned i = 0; ms_since(start) < 2400; i++) {
    keep_hot(1);
    cut += ways[i % 6]();
  }
  *(int *)arg = cut;
  return NULL;
}

int main(void) {
  if (pipe(silent) || sem_init(&never, 0, 0)) return 1;
  pthread_t threads[3];
  int cut[4];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, sleeper, &cut[i]);
  sleeper(&cut[3]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  printf("%d %d %d %d\n", cut[0], cut[1], cut[2], cut[3]);
}
