// Six ways to make a process with a copy of the memory, none of them `fork`.
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t _Fork(void);

/* Gives the child's id to the parent; the child ends with what `run` gives. */
typedef int (*work)(void *);

static pid_t by_quiet_fork(work run, void *arg) {
  pid_t id = _Fork();
  if (id == 0) _exit(run(arg));
  return id;
}

static pid_t by_clone(work run, void *arg) {
  /* A child may do it again, on a stack of its own. */
  enum { SIZE = 1 << 16, DEPTH = 3 };
  static _Thread_local _Alignas(16) char stacks[DEPTH][SIZE];
  static _Thread_local int depth;
  char *end = stacks[depth++ % DEPTH] + SIZE;
  pid_t id = clone(run, end, SIGCHLD, arg);
  depth--;
  return id;
}

static pid_t by_fork_call(work run, void *arg) {
  pid_t id = (pid_t)syscall(SYS_fork);
  if (id == 0) _exit(run(arg));
  return id;
}

static pid_t by_clone_call(work run, void *arg) {
  pid_t id = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (id == 0) _exit(run(arg));
  return id;
}

static pid_t by_clone3_call(work run, void *arg) {
  struct clone_args args;
  memset(&args, 0, sizeof args);
  args.exit_signal = SIGCHLD;
  pid_t id = (pid_t)syscall(SYS_clone3, &args, sizeof args);
  if (id == 0) _exit(run(arg));
  return id;
}

/* Nobody sees this one. */
static pid_t by_instruction(work run, void *arg) {
  long id = SYS_fork;
  __asm__ volatile("syscall" : "+a"(id) : : "rcx", "r11", "memory");
  if (id == 0) _exit(run(arg));
  return (pid_t)id;
}

static pid_t (*const ways[])(work, void *) = {by_quiet_fork, by_clone,       by_fork_call,
                                              by_clone_call, by_clone3_call, by_instruction};
#define WAYS ((int)(sizeof ways / sizeof *ways))
#define UNSEEN (WAYS - 1)

__attribute__((unused)) static int status_of(pid_t id) {
  int status = -1;
  waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}
