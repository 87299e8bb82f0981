/* A program whose compiles are killed. Natively LLVM finds that `never` is always zero, and drops
   what it cannot compile; compiled again, beside a program in which the variable might change, it
   stands there, and LLVM ends the compile by a fatal error. Prints one number, the same with and
   without `uruk live`.

       killed own|inner|signals|fork [MILLISECONDS] */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* An instruction of another processor, which no compiler for this one has. */
extern void foreign(int) __asm__("llvm.aarch64.hint");

static int never;

/* Keeps the variable in the program. */
int is_never(const int *address) { return address == &never; }

/* What is to be compiled again dies itself. */
__attribute__((noinline)) uint32_t own(uint32_t state, uint32_t count) {
  for (uint32_t at = 0; at < count; at++) {
    if (never) foreign(1);
    state = (state ^ at) * 16777619u;
  }
  return state;
}

/* Natively an instance for this argument, which is zero: only its callers can use it. */
static __attribute__((noinline)) uint32_t step(uint32_t state, uint32_t at, int zero) {
  if (zero) foreign(1);
  return (state ^ at) * 16777619u;
}

/* What it calls dies. */
__attribute__((noinline)) uint32_t inner(uint32_t state, uint32_t count) {
  for (uint32_t at = 0; at < count; at++) state = step(state, at, 0);
  return state;
}

/* Nothing is wrong with it. */
__attribute__((noinline)) uint32_t sound(uint32_t state, uint32_t count) {
  for (uint32_t at = 0; at < count; at++) state = (state ^ at) * 16777619u;
  return state;
}

static uint32_t (*volatile call)(uint32_t, uint32_t) = sound;

/* Each round does the same, so the number does not depend on how many there were. */
static uint32_t work(long milliseconds) {
  uint32_t result = 0;
  clock_t end = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
  do
    for (int round = 0; round < 100; round++) {
      uint32_t found = call(2166136261u, 4096);
      if (result && found != result) abort();
      result = found;
    }
  while (clock() < end);
  return result;
}

static pid_t first;
static volatile sig_atomic_t elsewhere;

static void handle(int signal) {
  (void)signal;
  if (syscall(SYS_gettid) != first) elsewhere = 1;
}

/* Signals each thread there is, as a program does that stops all of its own; true if a handler ran on
   one that is not the program's. */
static int signal_all(long milliseconds) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  int signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGALRM, SIGHUP};
  for (size_t at = 0; at < sizeof signals / sizeof *signals; at++) sigaction(signals[at], &action, 0);
  clock_t end = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
  while (clock() < end) {
    work(1);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));)
      for (size_t at = 0; atoi(task->d_name) && at < sizeof signals / sizeof *signals; at++)
        syscall(SYS_tgkill, first, atoi(task->d_name), signals[at]);
    if (tasks) closedir(tasks);
  }
  return elsewhere;
}

/* Copies of the process, one after the other: in each of them whatever is being compiled is lost. */
static int fork_often(long milliseconds) {
  uint32_t wanted = work(1);
  clock_t end = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
  while (clock() < end) {
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) _exit(work(3) != wanted);
    int status;
    if (waitpid(child, &status, 0) != child || status) return 1;
    work(1);
  }
  return 0;
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "sound";
  long milliseconds = count > 2 ? atol(arguments[2]) : 300;
  first = getpid();
  if (!strcmp(mode, "own")) call = own;
  if (!strcmp(mode, "inner")) call = inner;
  int wrong = 0;
  if (!strcmp(mode, "signals")) wrong = signal_all(milliseconds);
  if (!strcmp(mode, "fork")) wrong = fork_often(milliseconds);
  printf("%d %08x\n", wrong, work(milliseconds));
  return wrong;
}
