// Threads asleep in system calls, called from functions that are compiled again, moved and
// freed meanwhile, return into them.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: threads
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include "parts/fresh.h"

enum { SLEEPERS = 4 };
static int ends[2];

__attribute__((noinline)) static int asleep(int depth, int id) {
  volatile int kept = depth * 7 + id;
  if (depth == 0) {
    struct pollfd one = {.fd = ends[0], .events = POLLIN};
    return poll(&one, 1, 60000) + kept;
  }
  return asleep(depth - 1, id) + kept;
}

static void *sleeper(void *arg) {
  int *result = arg;
  *result = asleep(20, *result);
  return NULL;
}

int main(void) {
  pthread_t ids[SLEEPERS];
  int results[SLEEPERS];
  if (pipe(ends)) return 1;
  for (int i = 0; i < SLEEPERS; i++) {
    results[i] = i;
    pthread_create(&ids[i], NULL, sleeper, &results[i]);
  }
  for (int i = 0; i < 32; i++) {
    call_fresh(i * 2, 2);
    usleep(30000);
  }
  if (write(ends[1], "x", 1) != 1) return 1;
  for (int i = 0; i < SLEEPERS; i++) {
    pthread_join(ids[i], NULL);
    printf("%d ", results[i]);
  }
  printf("\n");
}
