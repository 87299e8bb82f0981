// The main thread ends by a system call of its own; the program goes on until its last thread
// ends, without handlers. (With whose status depends on the kernel: both are 0 here.)
// flags: -pthread
// hazard: children
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) static int work(int x) { return x + 1; }
static void never(void) { printf("a handler of atexit\n"); }

static void *run(void *arg) {
  /* Until the main thread is gone. */
  for (char state = 0; state != 'Z'; usleep(1000)) {
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) abort();
    fclose(file);
  }
  printf("still here %d\n", work((int)(long)arg));
  fflush(stdout);
  return NULL;
}

int main(void) {
  pthread_t thread;
  atexit(never);
  pthread_create(&thread, NULL, run, (void *)1L);
  pthread_create(&thread, NULL, run, (void *)1L);
  syscall(SYS_exit, 0);
}
