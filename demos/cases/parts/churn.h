// Threads that run all the time, so that whoever looks for return addresses has to ask
// them, and fresh functions whose first calls make code move.
#include <pthread.h>
#include <stdatomic.h>
#include "fresh.h"

static atomic_int churn_stop;

__attribute__((noinline)) static long churn_round(long n) {
  long sum = 0;
  for (long i = 0; i < n; i++) sum += i ^ (sum >> 3);
  return sum;
}

__attribute__((unused)) static void *churn(void *arg) {
  (void)arg;
  long sum = 0;
  while (!atomic_load_explicit(&churn_stop, memory_order_relaxed)) sum += churn_round(500);
  return (void *)sum;
}
