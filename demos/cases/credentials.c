// Changing credentials reaches every thread of the process by a signal that libc keeps
// to itself; nobody may be left out or wait for ever.
// flags: -pthread
// gate: D
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static int new_function(int x) { return x + 1; }
static void *waits(void *arg) {
  (void)arg;
  for (;;) pause();
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, waits, NULL);
  printf("%d %d\n", setuid(getuid()), setgid(getgid()));
  printf("%d\n", setresuid(-1, geteuid(), -1));
  printf("%d\n", new_function(1));
  pthread_cancel(thread);
  pthread_join(thread, NULL);
}
