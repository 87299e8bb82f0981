// Children that `fork` did not make sleep in old code while their parent moves and frees all
// of it; so does a child's child whose parent is gone. Each returns into what it left.
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: children
#include "parts/copies.h"
#include "parts/fresh.h"

__attribute__((noinline)) static int asleep(int depth, int ms) {
  volatile int kept = depth * 3;
  if (depth == 0) return usleep(ms * 1000) + kept;
  return asleep(depth - 1, ms) + kept;
}

static int ms = 1;

__attribute__((noinline)) static int child(void *arg) {
  int first = asleep(5, 15 * ms);
  return first + asleep(6, 2 * ms) + (int)(intptr_t)arg;
}

static int ends[2];

static int parent_of_orphan(void *arg) {
  if (by_instruction(child, arg) < 0) return 1;
  if (syscall(SYS_fork) == 0) {
    char byte = (char)child(arg);
    _exit(write(ends[1], &byte, 1) != 1);
  }
  return 0;
}

int main(void) {
  pid_t ids[WAYS];
  char byte = 0;
  if (pipe(ends)) return 1;
  /* What a child of an instruction calls has code: it cannot always get some. */
  child(NULL);
  ms = 10;
  for (int way = 0; way < WAYS; way++) {
    call_fresh(way * 2, 2);
    ids[way] = ways[way](child, (void *)(intptr_t)way);
  }
  int orphan = status_of(by_fork_call(parent_of_orphan, (void *)(intptr_t)7));
  for (int i = 0; i < 12; i++) {
    call_fresh(16 + i * 2, 2);
    asleep(4, 10);
  }
  for (int way = 0; way < WAYS; way++) printf("%d ", status_of(ids[way]));
  close(ends[1]);
  orphan += (int)read(ends[0], &byte, 1);
  printf("%d %d %d\n", orphan, byte, asleep(7, 1));
}
