// quick_exit runs its own handlers only.
// status: 9
// gate: D
#include <stdio.h>
#include <stdlib.h>

static void quick(void) { puts("quick"); fflush(stdout); }
static void never(void) { puts("never"); fflush(stdout); }
__attribute__((destructor)) static void never_either(void) { never(); }

int main(void) {
  atexit(never);
  at_quick_exit(quick);
  puts("main");
  fflush(stdout);
  quick_exit(9);
}
