// A program whose functions rest on fibers of a library while others are compiled and moved.
// The library's functions are called as `make`, `go` and `rest`.
#include <stdio.h>
#include "fibers.h"
#include "fresh.h"

enum { ROUNDS = 6 };
static char log_text[8192], *log_end = log_text;
static int ended, resting;

#define DEFINE(n)                                                              \
  __attribute__((noinline)) static int leaf##n(int x) { return x * 3 + n; }    \
  __attribute__((noinline)) static int middle##n(int x) {                      \
    int kept = leaf##n(x);                                                     \
    if (resting) rest(n);                                                      \
    return kept + leaf##n(kept);                                               \
  }
DEFINE(0) DEFINE(1) DEFINE(2) DEFINE(3)
static int (*const middles[FIBERS])(int) = {middle0, middle1, middle2, middle3};

static void body(int fiber) {
  for (int i = 0; i < ROUNDS; i++)
    log_end += sprintf(log_end, "%d:%d ", fiber, middles[fiber](i + fiber));
  ended++;
}

/* Compiled on the own stack: whoever waited on a fiber would be seen there by a scan. */
static void call_fibers(void) {
  resting = 0;
  for (int fiber = 0; fiber < FIBERS; fiber++) body(fiber);
  resting = 1;
  for (int fiber = 0; fiber < FIBERS; fiber++) make(fiber, body);
  for (int round = 0; round <= ROUNDS; round++) {
    for (int fiber = 0; fiber < FIBERS; fiber++) go(fiber);
    call_fresh(round * 8, 8);
  }
  printf("%s\n%d\n", log_text, ended);
}
