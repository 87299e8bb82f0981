// A program that locks its memory does not take all that is reserved beside it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char zeros[1 << 20];

// Pages that are there.
static long resident(void) {
  char text[200];
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || !fgets(text, sizeof text, file)) return -1;
  fclose(file);
  return strtol(strchr(text, ' '), NULL, 10);
}

int main(void) {
  // EINVAL, whatever the process may lock.
  int failed = mlockall(0) == -1 && errno == EINVAL;
  long before = resident();
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0 && errno != EPERM && errno != ENOMEM) return 1;
  long more = resident() - before;
  memset(zeros, 1, sizeof zeros);
  char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(block, 2, 1 << 20);
  munlockall();
  printf("%d %d %d\n", failed, more < 200 << 20 >> 12, zeros[5000] + block[6000]);
}
