// Thread-specific data with destructors that set it again, and thread-exit order.
// flags: -pthread
// gate: C
#include <pthread.h>
#include <stdio.h>

static pthread_key_t again, once;
static int rounds;
static void destroy_again(void *value) {
  printf("again %ld\n", (long)value);
  if (++rounds < 3) pthread_setspecific(again, (void *)((long)value + 1));
}
static void destroy_once(void *value) { printf("once %s\n", (char *)value); }

static void *run(void *arg) {
  (void)arg;
  pthread_setspecific(again, (void *)1L);
  pthread_setspecific(once, "text");
  return NULL;
}

int main(void) {
  pthread_key_create(&again, destroy_again);
  pthread_key_create(&once, destroy_once);
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  pthread_join(thread, NULL);
  printf("%d\n", rounds);
}
