// Integer division by zero.
// signal: SIGFPE
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  volatile int zero = 0, seven = 7;
  printf("%d", seven / zero);
  return 0;
}
