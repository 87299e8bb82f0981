// Children that `fork` did not make call functions for the first time: out of main, out of
// threads, out of a handler, as children of children, while other threads compile.
// flags: -pthread
// timeout: 90
// hazard: children
#include "parts/copies.h"
#include <pthread.h>
#include "parts/fresh.h"

static int variable = 1;

__attribute__((noinline)) static int only_here(int x) {
  __asm__ volatile("" : "+r"(x));
  return x + variable;
}

static int first_calls(void *arg) {
  int way = (int)(intptr_t)arg;
  variable = 10;
  call_fresh(32 + way * 4, 8);
  return only_here(way);
}

static int end_of(int way, work run, int arg) {
  return status_of(ways[way](run, (void *)(intptr_t)arg));
}

static int deeper(void *arg) {
  int way = (int)(intptr_t)arg;
  int inner = end_of(way, first_calls, way);
  return inner == way + 10 ? only_here(50 + way) : 99;
}

static int orphan_maker(void *arg) {
  int *ends = arg;
  for (int i = 0; i < UNSEEN; i++)
    if (fork() == 0) {
      usleep(20000);
      call_fresh(8, 8);
      char byte = (char)only_here(i);
      _exit(write(ends[1], &byte, 1) != 1);
    }
  return 0;
}

static volatile int handled = -1;

static void handler(int signal) {
  (void)signal;
  handled = status_of(by_quiet_fork(first_calls, (void *)(intptr_t)0));
}

/* A copy has the C library's locks as the program's own threads hold them, natively too: so none
   of them starts, ends or allocates while another one copies. */
static pthread_barrier_t all;

static void *in_thread(void *arg) {
  int way = *(int *)arg;
  pthread_barrier_wait(&all);
  *(int *)arg = end_of(way, first_calls, way);
  pthread_barrier_wait(&all);
  return NULL;
}

static void *compiling(void *arg) {
  (void)arg;
  pthread_barrier_wait(&all);
  call_fresh(56, 8);
  pthread_barrier_wait(&all);
  return NULL;
}

int main(void) {
  call_fresh(0, 4);
  for (int way = 0; way < UNSEEN; way++) printf("%d ", end_of(way, first_calls, way));
  printf("\n");
  for (int way = 0; way < UNSEEN; way++) printf("%d ", end_of(way, deeper, way));
  printf("\n");

  signal(SIGUSR1, handler);
  raise(SIGUSR1);
  printf("%d %d\n", handled, variable);

  pthread_t threads[UNSEEN], other;
  int ends[UNSEEN];
  pthread_barrier_init(&all, NULL, UNSEEN + 2);
  pthread_create(&other, NULL, compiling, NULL);
  for (int way = 0; way < UNSEEN; way++) {
    ends[way] = way;
    pthread_create(&threads[way], NULL, in_thread, &ends[way]);
  }
  pthread_barrier_wait(&all);
  pthread_barrier_wait(&all);
  for (int way = 0; way < UNSEEN; way++) {
    pthread_join(threads[way], NULL);
    printf("%d ", ends[way]);
  }
  pthread_join(other, NULL);
  printf("\n");

  int pipes[2], sum = 0;
  char byte;
  if (pipe(pipes)) return 1;
  printf("%d ", status_of(by_clone_call(orphan_maker, pipes)));
  close(pipes[1]);
  while (read(pipes[0], &byte, 1) == 1) sum += byte;
  printf("%d\n", sum);
  call_fresh(0, 64);
}
