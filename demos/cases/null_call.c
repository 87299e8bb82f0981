// A call through a null pointer.
// signal: SIGSEGV
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void (*volatile nothing)(void);

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  nothing();
  return 0;
}
