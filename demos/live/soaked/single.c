/* One function, of which each version has another constant table and other instructions.

       -DVERSION=N   which version */
#include "soaked.h"

#include <stdatomic.h>

#ifndef VERSION
#define VERSION 0
#endif

static const unsigned long weights[8] = {VERSION + 1, 3, 5, 7, 11, 13, 17, VERSION + 19};

static atomic_ulong calls;

static unsigned long weighted(unsigned long number) {
  unsigned long sum = VERSION;
  for (unsigned long at = 0; at < 200; at++) sum += (number ^ at) * weights[at & 7];
  return sum;
}

__attribute__((noinline)) struct half single(unsigned long number, unsigned *again) {
  atomic_fetch_add(&calls, 1);
  struct half made = {VERSION, weighted(number)};
  *again = VERSION;
  return made;
}

unsigned long single_calls(void) { return atomic_load(&calls); }
