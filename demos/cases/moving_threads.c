// Thousands of threads, joined and detached, come and go while functions move.
// flags: -pthread
// levels: O1-no-passes
// modes: lazy moving
// hazard: threads
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "parts/fresh.h"

enum { ROUNDS = 60, EACH = 40 };
static atomic_int done;
static atomic_long sum;

__attribute__((noinline)) static long work(long n) { return n < 2 ? n : work(n - 1) + work(n - 2); }

static void *run(void *arg) {
  long n = (long)arg;
  if (n % 8 == 0) usleep(2000);
  sum += work(n % 12);
  done++;
  return NULL;
}

int main(void) {
  int started = 0;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t ids[EACH];
    for (long i = 0; i < EACH; i++) {
      if (pthread_create(&ids[i], NULL, run, (void *)(round + i))) return 1;
      if (i % 2) pthread_detach(ids[i]);
      started++;
    }
    call_fresh(round, 1);
    for (int i = 0; i < EACH; i += 2) pthread_join(ids[i], NULL);
  }
  while (done < started) usleep(1000);
  printf("%d %ld\n", started, sum);
}
