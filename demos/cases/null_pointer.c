// A null pointer is a SIGSEGV, not a message of the runtime.
// signal: SIGSEGV
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  *(volatile int *)0 = 1;
  return 0;
}
