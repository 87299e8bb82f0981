// _exit flushes nothing and runs no handler.
// status: 4
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void never(void) { puts("never"); }

int main(void) {
  atexit(never);
  printf("lost in the buffer");
  write(1, "written\n", 8);
  _exit(4);
}
