// What a program finds when it starts: signal dispositions, mask, alternate stack,
// open files, threads, and limits are those of a natively linked program.
// gate: D
// hazard: signals
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

int main(void) {
  struct sigaction action;
  for (int s = 1; s < 32; s++)
    if (sigaction(s, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
      printf("signal %d is %s\n", s, action.sa_handler == SIG_IGN ? "ignored" : "handled");
  sigset_t mask;
  sigprocmask(SIG_SETMASK, NULL, &mask);
  for (int s = 1; s < 32; s++)
    if (sigismember(&mask, s)) printf("signal %d is blocked\n", s);
  stack_t stack;
  sigaltstack(NULL, &stack);
  printf("alternate stack %s\n", stack.ss_flags & SS_DISABLE ? "off" : "on");
  /* New files get the lowest number: the runtime must not hold the small ones. */
  printf("next file %d\n", open("/dev/null", O_RDONLY));
  struct rlimit limit;
  getrlimit(RLIMIT_STACK, &limit);
  printf("stack limit %ld\n", (long)limit.rlim_cur);
  printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
}
