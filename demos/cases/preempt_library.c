// What a program defines counts in a shared library that defines it, too: functions called by
// name and through tables, variables, and hooks that the library only declares; protected
// names stay the library's. The C library's and libm's variables are the program's as well.
// library: preempted.c
// link: -lm
// stderr: same
// gate: D
#include <errno.h>
#include <error.h>
#include <math.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern int preempted_call(int), preempted_by_table(int, int), preempted_through_pointer(void), preempted_protected_call(int);
int preempted_data = 5;
int preempted_initial = 7;
int signgam = 9;
static int hooks;
void preempted_hook(int x) { hooks += x; }
__attribute__((noinline)) int preempted_function(int x) { return x * 2; }
int preempted_protected(int x) { return x * 3; }
static void progname(void) { fputs("a name: ", stderr); }
void (*error_print_progname)(void) = progname;

int main(void) {
  printf("%d\n", preempted_call(20));
  preempted_data = 6;
  printf("%d %d\n", preempted_call(20), hooks);
  printf("%d %d\n", preempted_by_table(0, 8), preempted_by_table(1, 8));
  preempted_initial++;
  printf("%d %d\n", preempted_through_pointer(), preempted_protected_call(4));
  double (*volatile gamma)(double) = lgamma;
  gamma(-0.5);
  printf("%d\n", signgam);
  gamma(2.5);
  printf("%d\n", signgam);
  long sum = 0;
  for (int i = 0; i < 2000000; i++) sum += preempted_call(i & 7);
  printf("%ld\n", sum);
  fflush(stdout);
  error(0, ENOENT, "told by %s", "error");
  pid_t child = fork();
  if (child == 0) _exit(preempted_call(1));
  int status;
  waitpid(child, &status, 0);
  printf("%d\n", WEXITSTATUS(status));
}
