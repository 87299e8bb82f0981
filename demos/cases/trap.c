// An instruction that does not exist.
// signal: SIGILL
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  __builtin_trap();
  return 0;
}
