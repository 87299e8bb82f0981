// A library with kinds of names that need care: chosen by a resolver, with versions, weak.
#include <stdlib.h>
#include <string.h>
// Not to be folded into its callers.
#define OWN __attribute__((noinline, optnone))
static int chosen_here(int x) { return x + 10; }
static int (*choose(void))(int) {
  volatile int none = 0;
  return none ? 0 : chosen_here;
}
int kinds_chosen(int x) __attribute__((ifunc("choose")));
int kinds_chosen_kept(int x) __attribute__((ifunc("choose")));
__attribute__((weak)) int kinds_weak(int x) { return x + 20; }
__attribute__((weak)) int kinds_weak_data = 21;
OWN int kinds_overridden(int x) { return x + 30; }
int (*kinds_table[])(int) = {kinds_chosen, kinds_chosen_kept, kinds_weak, kinds_overridden};
int kinds_call(int which, int x) {
  switch (which) {
  case 0: return kinds_chosen(x);
  case 1: return kinds_chosen_kept(x);
  case 2: return kinds_weak(x) + kinds_weak_data;
  default: return kinds_overridden(x);
  }
}
int kinds_through_table(int which, int x) { return kinds_table[which](x); }
// Two versions of it are in the C library.
int kinds_versioned(const char *path) {
  char *found = realpath(path, NULL);
  if (!found) return -1;
  int length = (int)strlen(found);
  free(found);
  return length;
}
