// 300 threads that start together: all call the same new function, then each some of
// its own in another order.
// flags: -pthread
// gate: C
// repeat: 5
// hazard: threads
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 300 };
#define ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define ALL(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3) ROW(X, 4) ROW(X, 5) ROW(X, 6) ROW(X, 7)
#define DEFINE(n)                                                                         \
  __attribute__((noinline)) static long f##n(long a, double b, long c, double d) {        \
    static atomic_int calls;                                                              \
    atomic_fetch_add(&calls, 1);                                                          \
    return a + (long)b * 3 + c * 0x##n + (long)d + (atomic_load(&calls) > 0);             \
  }
#define ADDRESS(n) f##n,
ALL(DEFINE)
static long (*const functions[])(long, double, long, double) = {ALL(ADDRESS)};
enum { COUNT = sizeof functions / sizeof *functions };

__attribute__((noinline)) static long together(long id) {
  static atomic_long sum;
  return atomic_fetch_add(&sum, id) >= 0 ? id * 2 : -1;
}

static pthread_barrier_t barrier;
static long results[THREADS];

static void *run(void *arg) {
  long id = (long)arg;
  pthread_barrier_wait(&barrier);
  long sum = together(id);
  for (int i = 0; i < COUNT; i++) sum += functions[(i * 7 + id) % COUNT](id, 2.5, i, 4.0);
  results[id] = sum;
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (long i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, run, (void *)i)) return 1;
  unsigned long total = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    total = total * 31 + (unsigned long)results[i];
  }
  printf("%lx\n", total);
}
