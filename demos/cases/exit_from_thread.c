// A thread ends the program while main waits.
// flags: -pthread
// status: 5
// gate: C
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void bye(void) { puts("bye"); }
static void *run(void *arg) {
  (void)arg;
  printf("leaving");
  exit(5);
}

int main(void) {
  atexit(bye);
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  for (;;) pause();
}
