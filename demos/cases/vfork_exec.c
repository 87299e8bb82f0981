// vfork and exec, posix_spawn, popen, and exec as the last act.
// status: 23
// gate: D
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

__attribute__((noinline)) static int first_call_in_child(int x) { return x + 1; }

int main(void) {
  int status = -1;
  volatile int shared = 0;
  pid_t child = vfork();
  if (child == 0) {
    shared = first_call_in_child(4);
    execl("/bin/sh", "sh", "-c", "exit 12", (char *)NULL);
    _exit(99);
  }
  waitpid(child, &status, 0);
  printf("%d %d\n", WEXITSTATUS(status), shared);

  char *const words[] = {"sh", "-c", "exit 13", NULL};
  if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ)) return 1;
  waitpid(child, &status, 0);
  printf("%d\n", WEXITSTATUS(status));

  FILE *pipe = popen("echo from a pipe", "r");
  char line[50];
  if (fgets(line, sizeof line, pipe)) printf("%s", line);
  printf("%d\n", pclose(pipe));
  fflush(stdout);
  execl("/bin/sh", "sh", "-c", "echo replaced; exit 23", (char *)NULL);
}
