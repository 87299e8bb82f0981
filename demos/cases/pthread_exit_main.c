// main leaves by pthread_exit; the program goes on until its last thread ends.
// flags: -pthread
// gate: D
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_t first;
static void cleanup(void *arg) { printf("cleanup %s\n", (char *)arg); }
static void bye_key(void *value) { printf("key of main: %s\n", (char *)value); }
__attribute__((noinline)) static int work(int x) { return x + 1; }

static void *run(void *arg) {
  (void)arg;
  pthread_join(first, NULL);
  printf("still here %d\n", work(1));
  return NULL;
}

int main(void) {
  first = pthread_self();
  pthread_key_t key;
  pthread_key_create(&key, bye_key);
  pthread_setspecific(key, "value");
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  pthread_cleanup_push(cleanup, "handler");
  pthread_exit(NULL);
  pthread_cleanup_pop(0);
}
