// Children of fork sleep in old code while their parent moves and frees all of it, and
// compile and move on their own; each returns into what it left.
// levels: O1-no-passes O2
// modes: lazy moving
#include <sys/wait.h>
#include <unistd.h>
#include "parts/fresh.h"

__attribute__((noinline)) static int asleep(int depth, int ms) {
  volatile int kept = depth * 3;
  if (depth == 0) return usleep(ms * 1000) + kept;
  return asleep(depth - 1, ms) + kept;
}

__attribute__((noinline)) static int child(int id) {
  int first = asleep(5, 150);
  call_fresh(32 + id * 8, 8);
  return first + asleep(6, 20);
}

int main(void) {
  int ids[4];
  for (int i = 0; i < 4; i++) {
    call_fresh(i * 2, 2);
    ids[i] = fork();
    if (ids[i] == 0) _exit(child(i));
  }
  for (int i = 4; i < 16; i++) {
    call_fresh(i * 2, 2);
    asleep(4, 10);
  }
  for (int i = 0; i < 4; i++) {
    int status;
    waitpid(ids[i], &status, 0);
    printf("%d ", WIFEXITED(status) ? WEXITSTATUS(status) : -status);
  }
  printf("%d\n", asleep(7, 1));
}
