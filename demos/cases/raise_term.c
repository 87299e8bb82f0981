// A signal raised at oneself ends the program as itself.
// signal: SIGTERM
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  raise(SIGTERM);
  return 0;
}
