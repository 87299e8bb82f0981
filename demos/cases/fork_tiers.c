// A program that forks while functions move up: parent and children go on correctly,
// and both get better code for what is hot on their side only.
// flags: -pthread
// levels: O0 O1-no-passes
// modes: lazy
// timeout: 60
// options: -vv
// vary: --sampling timers
// log: Published .. "only_in_parent" .. tier: Optimized
// log: Published .. "only_in_child" .. tier: Optimized
// log: Published .. "only_in_grandchild" .. tier: Optimized
// hazard: fork
#include "parts/hot.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFINE(name, by) \
  __attribute__((noinline)) static unsigned name(unsigned x) { \
    for (int i = 0; i < 64; i++) x = x * by + 12345u + (x >> 11); \
    return x; \
  }
DEFINE(only_in_parent, 1103515245u)
DEFINE(only_in_child, 22695477u)
DEFINE(only_in_grandchild, 134775813u)

static unsigned work(unsigned (*f)(unsigned), long ms) {
  struct timespec start;
  clock_gettime(CLOCK_MONOTONIC, &start);
  unsigned first = f(7), shared = hot(1);
  while (ms_since(start) < ms)
    for (int i = 0; i < 500; i++)
      if (f(7) != first || hot(1) != shared) return 0;
  return first;
}

/* Runs it in a child, as deep as asked; its answer. */
static unsigned in_child(int depth) {
  int ends[2], status;
  unsigned answer = 1;
  if (pipe(ends)) return 2;
  pid_t child = fork();
  if (child == 0) {
    unsigned value = depth ? in_child(depth - 1) : work(only_in_grandchild, 1500);
    if (depth) value ^= work(only_in_child, 1500);
    _exit(write(ends[1], &value, sizeof value) == sizeof value ? 17 : 18);
  }
  close(ends[1]);
  if (read(ends[0], &answer, sizeof answer) != sizeof answer) answer = 3;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 17 ? answer : 4;
}

static atomic_int done;
static void *background(void *arg) {
  unsigned first = hot(1);
  while (!atomic_load(&done))
    for (int i = 0; i < 500; i++)
      if (hot(1) != first) *(unsigned *)arg = 1;
  return NULL;
}

int main(void) {
  pthread_t thread;
  unsigned wrong = 0, total = 0;
  pthread_create(&thread, NULL, background, &wrong);
  for (int i = 0; i < 30; i++) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(work(only_in_child, 2) == 0);
    total ^= work(only_in_parent, 10);
    waitpid(child, &status, 0);
    wrong += status != 0;
  }
  printf("%u\n", total);
  printf("%u\n", in_child(1));
  printf("%u\n", work(only_in_parent, 1000));
  atomic_store(&done, 1);
  pthread_join(thread, NULL);
  printf("%u\n", wrong);
}
