// A library makes a process that shares the program's memory, which runs the program's code
// while that is compiled anew and moved.
// library: processes.c
// levels: O0 O1-no-passes O2
// modes: lazy tiered moving
// gate: D
// hazard: libraries
#include <unistd.h>
#include "parts/fresh.h"

int process_make(int (*work)(void)), process_end(int pid);
static volatile int goes_on = 1;
static volatile int begun;

__attribute__((noinline)) static int leaf(int x) { return x * 3 + 1; }
__attribute__((noinline)) static int middle(int x) {
  int kept = leaf(x);
  begun++;
  while (!goes_on) usleep(200);
  return kept + leaf(kept);
}
static int work(void) { return middle(5); }

int main(void) {
  // Compiled here: a process that is no thread has no first calls.
  printf("%d\n", work());
  goes_on = begun = 0;
  int pid = process_make(work);
  while (!begun) usleep(200);
  for (int i = 0; i < 64; i += 8) call_fresh(i, 8);
  goes_on = 1;
  printf("%d\n", process_end(pid) >> 8);
}
