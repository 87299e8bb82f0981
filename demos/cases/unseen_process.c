// A child that an instruction made calls functions for the first time, and so does a child of
// it. One that was made while its parent compiled cannot; it ends, and says why.
// options: --tiers 1
// modes: lazy
// hazard: children
#include "parts/copies.h"
#include "parts/fresh.h"

/* Until nobody compiles. */
static int end_of(work run, void *arg) {
  for (;;) {
    int status = status_of(by_instruction(run, arg));
    if (status != 125) return status;
    usleep(1000);
  }
}

static int first_calls(void *arg) {
  call_fresh(32, 8);
  return *(int *)arg + 40;
}

static int deeper(void *arg) {
  *(int *)arg = 7;
  call_fresh(16, 4);
  int inner = end_of(first_calls, arg);
  call_fresh(20, 4);
  return inner;
}

int main(void) {
  int variable = 3;
  call_fresh(0, 4);
  printf("%d ", end_of(first_calls, &variable));
  printf("%d ", end_of(deeper, &variable));
  printf("%d\n", variable);
  call_fresh(0, 64);
}
