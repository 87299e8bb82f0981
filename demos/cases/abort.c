// abort ends the program with its signal; buffered output is lost.
// signal: SIGABRT
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  abort();
  return 0;
}
