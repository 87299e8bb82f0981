/* Two functions that belong together: answers with numbers of two versions are wrong.

       -DVERSION=N   which version */
#include "soaked.h"

#ifndef VERSION
#define VERSION 0
#endif

__attribute__((noinline)) struct half inner(unsigned long number) {
  struct half made = {VERSION, VERSION};
  for (unsigned long at = 0; at < 100; at++) made.value += (number + at) * (at + VERSION % 7 + 1);
  return made;
}

__attribute__((noinline)) struct two outer(unsigned long number) {
  struct two made;
  made.before = inner(number);
  made.outer.version = VERSION;
  made.outer.value = VERSION;
  for (unsigned long at = 0; at < 100; at++) made.outer.value += (number ^ at) * (at % 5 + VERSION);
  made.after = inner(number);
  return made;
}
