// A program that ends while a worker optimizes a large function: by returning, by exit,
// by quick_exit, by _exit, by a signal. The end does not wait for the worker, whose processor
// time is the process's.
// levels: O1-no-passes
// modes: lazy
// timeout: 120
// options: -vv --sampling off --set cost_optimized=1us --set instruction_optimized=0ns --set lindy=100 --set outlook=1s
// log: decides .. Compile
// no-log: Published .. "large" .. tier: Optimized
// hazard: threads
#define _GNU_SOURCE
#include "parts/hot.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds of work for an optimizer, and never quite the same. */
#define STEP(n) x = (x ^ (x >> ((n) % 13 + 1))) * 0x##n##5u; if (x & 0x##n##0u) x += table[x % 64]; else table[x % 61] ^= x;
#define S4(n) STEP(n##1) STEP(n##3) STEP(n##6) STEP(n##9)
#define S16(n) S4(n##1) S4(n##2) S4(n##4) S4(n##7)
#define S64(n) S16(n##2) S16(n##5) S16(n##7) S16(n##8)
#define S256(n) S64(n##1) S64(n##3) S64(n##6) S64(n##8)
static unsigned table[64];
__attribute__((noinline)) static unsigned large(unsigned x) {
  S256(1) S256(2) S256(3) S256(4) S256(5) S256(6)
  return x;
}

/* Whether a worker of the runtime is at it; natively there is none to wait for. */
static int optimizing(void) {
  DIR *folder = opendir("/proc/self/task");
  int found = 0;
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (file && fgets(name, sizeof name, file)) found |= !strncmp(name, "uruk-opt", 8);
    if (file) fclose(file);
  }
  if (folder) closedir(folder);
  return found;
}

static void end(int way) {
  if (way == 1) exit(3);
  if (way == 2) quick_exit(3);
  if (way == 3) _exit(3);
  if (way == 4) raise(SIGKILL);
}

static long ms_between(struct timespec from, struct rusage to) {
  long sum = (to.ru_utime.tv_sec + to.ru_stime.tv_sec - from.tv_sec) * 1000;
  return sum + (to.ru_utime.tv_usec + to.ru_stime.tv_usec) / 1000 - from.tv_nsec / 1000000;
}

int main(void) {
  for (int way = 0; way < 5; way++) {
    int ends[2], status;
    struct timespec at;
    if (pipe(ends)) return 1;
    pid_t child = fork();
    if (child == 0) {
      unsigned sum = 0;
      for (int i = 0; i < 20000 && !optimizing(); i += 100)
        for (int j = 0; j < 100; j++) sum += large((unsigned)(i + j));
      usleep(20000);
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
      if (write(ends[1], &at, sizeof at) != sizeof at) _exit(4);
      table[0] = sum;
      end(way);
      return 3;
    }
    close(ends[1]);
    if (read(ends[0], &at, sizeof at) != sizeof at) return 2;
    struct rusage used;
    wait4(child, &status, 0, &used);
    long took = ms_between(at, used);
    close(ends[0]);
    fprintf(stderr, "way %d: ended after %ld ms of work\n", way, took);
    int right = way == 4 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 3;
    printf("%d %d %s\n", way, right, took < 400 ? "prompt" : "late");
    fflush(stdout);
  }
}
