// Functions that native programs take from the part of libc that is linked statically.
// gate: D
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void before(void) { printf("before fork\n"); fflush(stdout); }
static void in_parent(void) { printf("in parent\n"); fflush(stdout); }
static void in_child(void) { write(1, "", 0); }
static void bye(void) { printf("bye\n"); }

int main(void) {
  struct stat a, b, c;
  printf("%d %d\n", stat("/", &a), lstat("/", &b));
  int is_pipe[2];
  if (pipe(is_pipe)) return 1;
  printf("%d %d %d\n", fstat(is_pipe[0], &c), S_ISFIFO(c.st_mode), S_ISDIR(a.st_mode));
  printf("%d\n", a.st_ino == b.st_ino);
  atexit(bye);
  pthread_atfork(before, in_parent, in_child);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(5);
  int status;
  waitpid(child, &status, 0);
  printf("%d\n", WEXITSTATUS(status));
}
