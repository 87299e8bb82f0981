// main returns while other threads still call functions, old and new.
// flags: -pthread
// status: 3
// gate: C
// repeat: 5
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int started;
#define DEFINE(n) __attribute__((noinline)) static int f##n(int x) { __asm__ volatile("" : "+r"(x)); return x + n; }
DEFINE(0) DEFINE(1) DEFINE(2) DEFINE(3) DEFINE(4) DEFINE(5) DEFINE(6) DEFINE(7)
static int (*const functions[])(int) = {f0, f1, f2, f3, f4, f5, f6, f7};

static void *run(void *arg) {
  (void)arg;
  atomic_fetch_add(&started, 1);
  for (unsigned i = 0;; i++) functions[i / 1000 % 8]((int)i);
  return NULL;
}

static void bye(void) { usleep(3000); puts("bye"); }
__attribute__((destructor)) static void last(void) { usleep(3000); puts("last"); }

int main(void) {
  atexit(bye);
  for (int i = 0; i < 4; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_detach(thread);
  }
  while (atomic_load(&started) < 4) usleep(100);
  return 3;
}
