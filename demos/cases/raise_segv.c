// Even SIGSEGV, raised.
// signal: SIGSEGV
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  raise(SIGSEGV);
  return 0;
}
