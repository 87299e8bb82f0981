// Thread-locals declared with models of their own.
// flags: -pthread
// gate: D
#include <pthread.h>
#include <stdio.h>

#define MODEL(m) __attribute__((tls_model(m)))
_Thread_local int general MODEL("global-dynamic") = 1;
static _Thread_local int local_dynamic MODEL("local-dynamic") = 2;
_Thread_local int initial MODEL("initial-exec") = 3;
static _Thread_local int exec MODEL("local-exec") = 4;

__attribute__((noinline)) static int all(void) {
  return general++ * 1000 + local_dynamic++ * 100 + initial++ * 10 + exec++;
}

static void *run(void *arg) {
  *(int *)arg = all() + all();
  return NULL;
}

int main(void) {
  int result[8];
  for (int i = 0; i < 8; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, &result[i]);
    pthread_join(thread, NULL);
  }
  printf("%d %d %d\n", result[0], result[7], all());
}
