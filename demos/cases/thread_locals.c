// Thread-locals: zeroed, initialized, over-aligned, static, in two modules and in an
// object file, many threads; their address is stable within a thread.
// flags: -pthread
// extra: thread_locals_other.c
// object: thread_locals_object.c
// gate: C
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

_Thread_local int zero;
_Thread_local int initialized = 41;
static _Thread_local _Alignas(64) char aligned[64] = "aligned";
extern _Thread_local long elsewhere;
extern _Thread_local int in_object;
static __thread int *pointer;
long bump_elsewhere(void);
int bump_in_object(void);
int *address_of_initialized(void);

__attribute__((noinline)) static int local_counter(void) {
  static _Thread_local int count = 100;
  return ++count;
}

static void *run(void *arg) {
  long id = (long)arg;
  pointer = &initialized;
  zero += (int)id;
  *pointer += (int)id;
  elsewhere += id;
  in_object += (int)id;
  int good = zero == id && initialized == 41 + id && strcmp(aligned, "aligned") == 0;
  good &= (uintptr_t)aligned % 64 == 0 && pointer == address_of_initialized();
  good &= local_counter() == 101 && local_counter() == 102;
  good &= bump_elsewhere() == 7 + id + 1 && bump_in_object() == 9 + id + 1;
  aligned[0] = 'A';
  return (void *)(long)good;
}

int main(void) {
  pthread_t threads[64];
  int good = 0;
  for (int round = 0; round < 4; round++) {
    for (long i = 0; i < 64; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 64; i++) {
      void *result;
      pthread_join(threads[i], &result);
      good += (int)(long)result;
    }
  }
  printf("%d %d\n", good, run((void *)5) != NULL);
  printf("%d %d %ld %d %s\n", zero, initialized, elsewhere, in_object, aligned);
}
