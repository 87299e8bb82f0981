/* A daemon: the process that was started ends, and its grandchild answers lines. Its first line tells
   which numbers files get that it opens, which are those that it closed, and its number.

       -DNUMBER=N   what an answer begins with */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef NUMBER
#define NUMBER 1
#endif

__attribute__((noinline)) int number(int x) { return x * 100 + NUMBER; }

int main(void) {
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) && strcmp(line, "fork\n")) {
    printf("%d\n", number((int)strlen(line)));
    fflush(stdout);
  }
  if (fork()) _exit(0);
  setsid();
  if (fork()) _exit(0);
  int at = dup(0), first, second;
  close(0);
  first = open("/dev/null", O_RDONLY);
  second = open("/dev/null", O_RDONLY);
  dup2(at, 0);
  printf("%d %d %d\n", first, second - at, (int)getpid());
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    printf("%d\n", number((int)strlen(line)));
    fflush(stdout);
  }
  return 0;
}
