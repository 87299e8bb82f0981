// longjmp into functions that were compiled again and moved since setjmp, over frames that
// were, too.
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: stacks
#include <setjmp.h>
#include <unistd.h>
#include "parts/fresh.h"

static jmp_buf out[3];

__attribute__((noinline)) static void dive(int depth, int which) {
  volatile int kept = depth;
  if (depth == 0) {
    usleep(5000);
    longjmp(out[which], which + 1);
  }
  dive(depth - 1, which);
  if (kept != depth) printf("lost\n");
}

__attribute__((noinline)) static int level(int which, volatile int *calls) {
  volatile int local = which * 100;
  int value = setjmp(out[which]);
  if (value == 0 || *calls % 5) {
    call_fresh(*calls, 1);
    (*calls)++;
    local++;
    if (which < 2) local += level(which + 1, calls);
    dive(10, which);
  }
  return local + value;
}

int main(void) {
  volatile int calls = 1;
  int result = level(0, &calls);
  printf("%d %d\n", result, calls);
}
