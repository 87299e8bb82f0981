// A program that is stopped and continued all the time: `poll` and sleeps go on, as they do
// natively.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "parts/churn.h"

static atomic_long interrupted;

static void *waiter(void *arg) {
  struct timespec time = {0, 1000000};
  for (int i = 0; !churn_stop; i++) {
    churn_round(i * 7919 % 3000);
    if (i % 2 ? poll(NULL, 0, 2) : nanosleep(&time, NULL)) interrupted++;
  }
  return arg;
}

int main(void) {
  atomic_int *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t parent = getpid(), child = fork();
  if (!child) {
    /* Until the parent is gone or done: it is never left stopped. */
    while (getppid() == parent && !*done) {
      kill(parent, SIGSTOP);
      usleep(300);
      kill(parent, SIGCONT);
      usleep(700);
    }
    _exit(0);
  }
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, waiter, NULL);
  for (int i = 0; i < 64; i++) {
    call_fresh(i, 1);
    struct timespec time = {0, 15000000};
    if (nanosleep(&time, NULL)) interrupted++;
  }
  *done = 1;
  waitpid(child, NULL, 0);
  churn_stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  printf("interrupted %ld\n", interrupted);
}
