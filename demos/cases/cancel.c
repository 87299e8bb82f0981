// Cancellation: cleanup handlers run, functions in them may be new; deferred and
// asynchronous; a thread that ends itself.
// flags: -pthread -fexceptions
// gate: D
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static void note(const char *text) { printf("%s\n", text); }
static void handler(void *arg) { note(arg); }
static void at_scope_end(int *value) { printf("scope %d\n", *value); }

__attribute__((noinline)) static void deep(int n, int write_end) {
  __attribute__((cleanup(at_scope_end))) int here = n;
  if (n) {
    deep(n - 1, write_end);
    return;
  }
  char ready = 1;
  if (write(write_end, &ready, 1) != 1) return;
  for (;;) pause();
}

static void *waits(void *arg) {
  pthread_cleanup_push(handler, "outer handler");
  pthread_cleanup_push(handler, "inner handler");
  deep(3, *(int *)arg);
  pthread_cleanup_pop(0);
  pthread_cleanup_pop(0);
  return NULL;
}

static void *spins(void *arg) {
  char ready = 1;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  if (write(*(int *)arg, &ready, 1) != 1) return NULL;
  for (volatile unsigned long i = 0;; i++) {}
}

static void *leaves(void *arg) {
  __attribute__((cleanup(at_scope_end))) int here = 77;
  pthread_exit(arg);
}

int main(void) {
  int ends[2];
  char ready;
  if (pipe(ends)) return 1;
  void *result;
  pthread_t thread;
  void *(*const bodies[])(void *) = {waits, spins};
  for (int i = 0; i < 2; i++) {
    pthread_create(&thread, NULL, bodies[i], &ends[1]);
    if (read(ends[0], &ready, 1) != 1) return 1;
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("%d\n", result == PTHREAD_CANCELED);
  }
  pthread_create(&thread, NULL, leaves, ends);
  pthread_join(thread, &result);
  printf("%d\n", result == ends);
}
