// A budget for code far below what the program uses: functions go and come back under callers
// of three threads, while one is deep inside, in a callback of the C library, and in a child of a fork.
// flags: -pthread
// levels: O0 O1-no-passes
// modes: lazy
// options: --code-budget 4K --stats
// vary: --tiers 1
// vary: --tiers 2
// log: evicted code .. compiled again
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ONE(n)                                                                                     \
  static unsigned f##n(unsigned x) {                                                               \
    unsigned s = x;                                                                                \
    for (unsigned i = 0; i < 5; i++) s = s * (2 * n + 3) + (i ^ n);                                \
    return s;                                                                                      \
  }
#define EIGHT(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7)
EIGHT(1) EIGHT(2) EIGHT(3) EIGHT(4) EIGHT(5) EIGHT(6) EIGHT(7) EIGHT(8)

#define NAMES(n) f##n##0, f##n##1, f##n##2, f##n##3, f##n##4, f##n##5, f##n##6, f##n##7
static unsigned (*const all[])(unsigned) = {NAMES(1), NAMES(2), NAMES(3), NAMES(4),
                                            NAMES(5), NAMES(6), NAMES(7), NAMES(8)};
enum { COUNT = sizeof all / sizeof *all };

static unsigned round_of(unsigned x) {
  unsigned sum = 0;
  for (int n = 0; n < COUNT; n++) sum += all[n](x + n);
  return sum;
}

// Each frame of it has its own code to return into, if it went meanwhile.
static unsigned deep(unsigned depth) {
  if (depth == 0) return round_of(1);
  return deep(depth - 1) + all[depth % COUNT](depth);
}

static int by_value(const void *a, const void *b) {
  unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
  unsigned cost = all[x % COUNT](x) ^ all[y % COUNT](y);
  return x < y ? -1 : x > y ? 1 : (int)(cost & 0);
}

static void *work(void *arg) {
  unsigned *sum = arg;
  for (unsigned i = 0; i < 30; i++) *sum = *sum * 31 + round_of(i);
  return NULL;
}

int main(void) {
  pthread_t threads[3];
  unsigned sums[3] = {1, 2, 3}, values[200];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, &sums[i]);
  printf("deep %u\n", deep(300));
  for (unsigned i = 0; i < 200; i++) values[i] = i * 7919 % 211;
  qsort(values, 200, sizeof *values, by_value);
  printf("sorted %u %u %u\n", values[0], values[100], values[199]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  printf("threads %u %u %u\n", sums[0], sums[1], sums[2]);
  fflush(stdout);
  int child = fork();
  if (child == 0) {
    printf("child %u\n", deep(50) + round_of(9));
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  printf("parent %u\n", round_of(9));
  return 0;
}
