// Threads that end in the middle of loops that were left: by pthread_exit and pthread_cancel
// through both frames, whose cleanup handlers run once each; functions that call themselves
// from their loops, on all threads at once.
// flags: -pthread -fexceptions
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int cleaned[4];

static void clean(void *counter) { __atomic_add_fetch((int *)counter, 1, __ATOMIC_SEQ_CST); }
static void at_end(int *value) { __atomic_add_fetch(&cleaned[2], *value, __ATOMIC_SEQ_CST); }

// Handlers of the function and of its loop; the thread ends in the loop.
static void *exits(void *at) {
  __attribute__((cleanup(at_end))) int whole = 10;
  long last = (long)at;
  pthread_cleanup_push(clean, &cleaned[0]);
  for (long i = 0; i < 100; i++) {
    __attribute__((cleanup(at_end))) int here = 1;
    pthread_cleanup_push(clean, &cleaned[1]);
    if (i == last) pthread_exit((void *)(i * 2 + whole));
    pthread_cleanup_pop(0);
  }
  pthread_cleanup_pop(0);
  return NULL;
}

struct spinning {
  volatile int running;
  int asynchronous;
};

static void *spins(void *arg) {
  struct spinning *spinning = arg;
  __attribute__((cleanup(at_end))) int whole = 100;
  if (spinning->asynchronous) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  int ignored = 0;
  pthread_cleanup_push(clean, spinning->asynchronous ? &ignored : &cleaned[3]);
  for (volatile long i = 0;; i++) {
    if (i == 30) spinning->running = 1;
    if (i >= 30 && !spinning->asynchronous) {
      pthread_testcancel();
      usleep(100);
    }
  }
  pthread_cleanup_pop(0);
  return NULL;
}

// Calls itself out of its loops: each activation leaves by itself.
__attribute__((noinline)) static unsigned long tree(int depth, unsigned long seed) {
  unsigned long mine[4] = {seed, seed * 3, seed ^ 5, 1};
  unsigned long sum = 0;
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 2; j++) {
      mine[(i + j) & 3] += depth;
      if (depth) sum = sum * 31 + tree(depth - 1, mine[i] + j);
    }
    sum ^= mine[i];
  }
  return sum + mine[3];
}

static void *grows(void *seed) { return (void *)tree(4, (unsigned long)seed); }

int main(void) {
  pthread_t threads[8];
  void *result;
  for (long at = 0; at < 8; at++) pthread_create(&threads[at], NULL, exits, (void *)(at * 7));
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], &result);
    printf("%ld ", (long)result);
  }
  printf("\ncleaned %d %d %d\n", cleaned[0], cleaned[1], cleaned[2]);
  for (int i = 0; i < 4; i++) {
    struct spinning spinning = {0, i & 1};
    pthread_create(&threads[0], NULL, spins, &spinning);
    while (!spinning.running) usleep(100);
    pthread_cancel(threads[0]);
    pthread_join(threads[0], &result);
    printf("%d ", result == PTHREAD_CANCELED);
  }
  // Handlers are found by tables of calls, which are in the other two.
  printf("\ncleaned %d\n", cleaned[3]);
  for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, grows, (void *)(i + 1));
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], &result);
    printf("%lx\n", (unsigned long)result);
  }
}
