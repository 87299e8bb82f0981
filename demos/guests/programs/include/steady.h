/* Runs one piece of work again and again, so that one process shows how it warms up.
 *
 * A driver calls `steady` with a function that does one iteration and yields a
 * checksum, which must depend on all the work. The checksums, combined, go to
 * standard output: that is what runs are compared by. Where the variable
 * ITERATION_TIMES names a file, it gets one line for each iteration, in
 * nanoseconds: when it began (monotonic clock), how long it took, and the
 * processor time of this thread and of the whole process meanwhile. Times are kept
 * in memory until the end. */
#ifndef STEADY_H
#define STEADY_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEADY_CLOCKS = 3 };

struct steady_moment {
  int64_t ns[STEADY_CLOCKS];
};

static struct steady_moment steady_now(void) {
  static const clockid_t clocks[STEADY_CLOCKS] = {
      CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, CLOCK_PROCESS_CPUTIME_ID};
  struct steady_moment moment;
  for (int i = 0; i < STEADY_CLOCKS; i++) {
    struct timespec time;
    clock_gettime(clocks[i], &time);
    moment.ns[i] = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
  }
  return moment;
}

static int steady_write(const char *path, const struct steady_moment *moments, long count) {
  FILE *file = fopen(path, "w");
  if (file == NULL) {
    perror(path);
    return 1;
  }
  for (long i = 0; i < count; i++) {
    const int64_t *from = moments[2 * i].ns, *to = moments[2 * i + 1].ns;
    fprintf(file, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", from[0], to[0] - from[0],
            to[1] - from[1], to[2] - from[2]);
  }
  return fclose(file) == 0 ? 0 : 1;
}

/* `iterations` calls of `iterate(context)`; the program's exit status. */
static int steady(const char *name, long iterations, uint64_t (*iterate)(void *), void *context) {
  const char *path = getenv("ITERATION_TIMES");
  struct steady_moment *moments = NULL;
  if (iterations < 1) iterations = 1;
  if (path != NULL) {
    moments = malloc(2 * (size_t)iterations * sizeof *moments);
    if (moments == NULL) {
      fprintf(stderr, "no memory for %ld iterations\n", iterations);
      return 1;
    }
  }
  uint64_t sum = 0;
  for (long i = 0; i < iterations; i++) {
    if (moments != NULL) moments[2 * i] = steady_now();
    sum = (sum << 1 | sum >> 63) ^ iterate(context);
    if (moments != NULL) moments[2 * i + 1] = steady_now();
  }
  printf("%s: %ld iterations, %016" PRIx64 "\n", name, iterations, sum);
  if (moments == NULL) return 0;
  int status = steady_write(path, moments, iterations);
  free(moments);
  return status;
}

#endif
