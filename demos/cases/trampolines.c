// Code on the stack: trampolines of functions with an environment, on the main thread, as far as its
// stack grows, and on threads.
// extra: trampolines_made.ll
// flags: -pthread
// link: -pthread
#include <pthread.h>
#include <stdio.h>

typedef long function(long);
long with_trampoline(long (*apply)(function *, long), long start, long count);

static long apply(function *f, long count) {
  long sum = 0;
  for (long i = 0; i < count; i++) sum += f(i);
  return sum;
}

static long deep(int depth) {
  volatile char room[4096];
  room[depth & 4095] = 1;
  return depth == 0 ? with_trampoline(apply, 3, 100) : deep(depth - 1) + room[depth & 4095];
}

static void *thread(void *argument) {
  *(long *)argument = with_trampoline(apply, *(long *)argument, 50) + deep(20);
  return 0;
}

int main(void) {
  printf("%ld\n", with_trampoline(apply, 1, 1000));
  printf("%ld\n", deep(1000));
  for (int round = 0; round < 3; round++) {
    pthread_t threads[3];
    long values[3] = {round, 10, 20};
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, thread, &values[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    printf("%ld %ld %ld\n", values[0], values[1], values[2]);
  }
}
