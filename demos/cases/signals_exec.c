// Children that run threads and then another program by `exec`, or by `posix_spawn`,
// `system` and `vfork` beside running threads: the new image is not ended by a signal
// that was on its way to the old one.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// timeout: 120
// hazard: signals
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "parts/churn.h"

static void *runner(void *arg) {
  churn_round((long)arg * 20000);
  execl("/bin/true", "true", NULL);
  return NULL;
}

static void *caller(void *arg) {
  for (int i = 0; i < 64; i++) call_fresh(i, 1);
  return arg;
}

static void finish(const char *what, pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) != child) {}
  if (status) printf("%s: status %#x\n", what, status);
}

int main(void) {
  for (int i = 0; i < 12; i++) {
    pid_t child = fork();
    if (!child) {
      pthread_t calls, runs;
      pthread_create(&calls, NULL, caller, NULL);
      pthread_create(&runs, NULL, runner, (void *)(long)i);
      churn(NULL);
    }
    finish("exec", child);
  }
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, churn, NULL);
  extern char **environ;
  for (int i = 0; i < 8; i++) {
    call_fresh(i * 8, 8);
    pid_t child = 0;
    char *args[] = {"true", NULL};
    if (posix_spawn(&child, "/bin/true", NULL, NULL, args, environ)) return 1;
    finish("posix_spawn", child);
    int status = system("true");
    if (status) printf("system: status %#x\n", status);
    child = vfork();
    if (!child) {
      for (int s = 1; s < 65; s++) signal(s, SIG_DFL);
      execl("/bin/true", "true", NULL);
      _exit(9);
    }
    finish("vfork", child);
  }
  churn_stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  puts("done");
}
