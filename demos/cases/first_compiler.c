// What the baseline compiler does not cover is called for the first time where it is hard to load
// LLVM, in the callback of the dynamic loader, in handlers, in copies of the process, by many
// threads, at the end. The parent never calls such a function.
// hazard: threads
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* No data: some of that is LLVM's. */
__attribute__((noinline)) static int covered_by_nobody(int x) {
  int y;
  __asm__("leal 1(%1), %0" : "=r"(y) : "r"(x));
  return y;
}
static void tell(int what) {
  putchar('a' + covered_by_nobody(what));
  putchar('\n');
  fflush(stdout);
}

static int in_callback(struct dl_phdr_info *info, size_t size, void *data) {
  tell(0);
  return 1;
}
static void in_handler(int number) { tell(1); }
static void at_exit(void) { tell(2); }
static void in_destructor(void *value) { tell(3); }
static void *in_thread(void *argument) {
  return (void *)(long)covered_by_nobody((int)(long)argument);
}
static void *with_key(void *argument) {
  pthread_setspecific((pthread_key_t)(long)argument, argument);
  return 0;
}

static int scene(int number) {
  pthread_t threads[8];
  pthread_key_t key, unused;
  long sum = 0;
  switch (number) {
  case 0: dl_iterate_phdr(in_callback, 0); break;
  case 1: signal(SIGUSR1, in_handler), raise(SIGUSR1); break;
  case 2: atexit(at_exit); break;
  case 3:
    pthread_key_create(&unused, 0);
    pthread_key_create(&key, in_destructor);
    pthread_create(threads, 0, with_key, (void *)(long)key);
    pthread_join(threads[0], 0);
    break;
  case 4:
    for (long i = 0; i < 8; i++) pthread_create(threads + i, 0, in_thread, (void *)i);
    for (int i = 0; i < 8; i++) {
      void *result;
      pthread_join(threads[i], &result);
      sum += (long)result;
    }
    tell((int)sum - 32);
    break;
  default:
    /* A copy of a copy, which no handler of fork's sees. */
    if (_Fork() == 0) {
      tell(5);
      _exit(0);
    }
    wait(0);
  }
  return 0;
}

/* Without a loop, which would have LLVM loaded for what it may come to. */
static int in_child(int number) {
  pid_t child = fork();
  if (child == 0) exit(scene(number));
  int status;
  waitpid(child, &status, 0);
  return status;
}

int main(void) {
  return in_child(0) | in_child(1) | in_child(2) | in_child(3) | in_child(4) | in_child(5);
}
