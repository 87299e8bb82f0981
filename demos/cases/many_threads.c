// Two thousand threads alive at once, each calling what is hot, while the threads are
// sampled and the function gets better code.
// flags: -pthread
// levels: O1-no-passes
// modes: lazy
// options: -vv
// vary: --sampling timers
// timeout: 120
// log: Published .. "hot" .. tier: Optimized
// hazard: threads
#include "parts/hot.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 2000 };
static atomic_int alive, wrong;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *run(void *arg) {
  unsigned expected = *(unsigned *)arg;
  if (hot(1) != expected) atomic_fetch_add(&wrong, 1);
  pthread_mutex_lock(&lock);
  if (atomic_fetch_add(&alive, 1) + 1 == THREADS) pthread_cond_broadcast(&changed);
  while (atomic_load(&alive) < THREADS) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < 2000; i++)
    if (hot(1) != expected) atomic_fetch_add(&wrong, 1);
  return NULL;
}

int main(void) {
  static pthread_t threads[THREADS];
  unsigned expected = keep_hot(200);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], &small, run, &expected)) return 1;
  keep_hot(300);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%d %d\n", atomic_load(&alive), atomic_load(&wrong));
}
