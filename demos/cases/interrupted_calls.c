// System calls that block are not interrupted by the runtime: no EINTR appears while
// other threads keep calling new functions.
// flags: -pthread
// gate: D
// hazard: signals
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define ALL(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3)
#define DEFINE(n) __attribute__((noinline)) static int f##n(int x) { __asm__ volatile("" : "+r"(x)); return x + 0x##n; }
#define ADDRESS(n) f##n,
ALL(DEFINE)
static int (*const functions[])(int) = {ALL(ADDRESS)};

static void *caller(void *arg) {
  int sum = 0;
  for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
    sum = functions[i](sum);
    usleep(2000);
  }
  *(int *)arg = sum;
  return NULL;
}

int main(void) {
  int sum = 0, pipe_ends[2];
  if (pipe(pipe_ends)) return 1;
  pthread_t thread;
  pthread_create(&thread, NULL, caller, &sum);
  struct pollfd fd = {.fd = pipe_ends[0], .events = POLLIN};
  printf("poll %d\n", poll(&fd, 1, 60));
  struct timespec pause = {0, 50 * 1000 * 1000}, left = {9, 9};
  int code = nanosleep(&pause, &left);
  printf("nanosleep %d %ld\n", code, code ? (long)left.tv_sec : 0);
  pthread_join(thread, NULL);
  printf("%d\n", sum);
}
