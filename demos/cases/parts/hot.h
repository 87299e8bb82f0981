// Work that deserves better code, for a while.
#include <time.h>

__attribute__((noinline)) static unsigned hot(unsigned x) {
  for (int i = 0; i < 64; i++) x = x * 1664525u + 1013904223u + (x >> 13);
  return x;
}

static long ms_since(struct timespec start) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
}

/* Of a processor, by the calling thread: a busy machine has this thread wait, and those that
   make better code. */
static long ms_of_processor(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Calls it for so long; how often does not change what it returns. */
static unsigned keep_hot(long ms) {
  long end = ms_of_processor() + ms;
  unsigned first = hot(1);
  while (ms_of_processor() < end)
    for (unsigned i = 0; i < 1000; i++)
      if (hot(1) != first) return 0;
  return first;
}
