// Many children at once, each with output of its own through stdio, each forking again
// and ending by exit with its handlers.
// status: 10
// gate: D
// hazard: fork
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int depth;
static void bye(void) {
  fflush(stdout);
  _exit(depth + 10);
}

__attribute__((noinline)) static int grow(int n) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    depth++;
    printf("at depth %d\n", depth);
    if (n > 1) {
      int status = grow(n - 1);
      printf("back at %d with %d\n", depth, status);
    }
    exit(1);
  }
  int status;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

int main(void) {
  atexit(bye);
  printf("%d\n", grow(5));
  pid_t children[10];
  fflush(stdout);
  for (int i = 0; i < 10; i++)
    if ((children[i] = fork()) == 0) _exit(i * 3);
  int sum = 0;
  for (int i = 0; i < 10; i++) {
    int status;
    waitpid(children[i], &status, 0);
    sum += WEXITSTATUS(status);
  }
  printf("%d\n", sum);
}
