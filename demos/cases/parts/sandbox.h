// A process that gives up all system calls but a few, and computes on: as what decodes data that it
// does not trust does. Each kind of filter in a child, and one in the process itself.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef LOAD_FILTER
#define LOAD_FILTER(program) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program)
#endif

enum way { BY_SECCOMP, BY_PRCTL, STRICT };

/* Answers all but these calls with `action`, in all threads or in this one. */
static void give_up(enum way way, unsigned action, int futex) {
  int allowed[] = {SYS_read,       SYS_write, SYS_exit, SYS_exit_group, SYS_brk,
                   SYS_newfstatat, SYS_fstat, SYS_rt_sigreturn, futex ? SYS_futex : SYS_read};
  struct sock_filter code[32];
  int count = 0, calls = sizeof allowed / sizeof *allowed;
  code[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < calls; i++)
    code[count++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], (unsigned char)(calls - i), 0);
  code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
  code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {(unsigned short)count, code};
  long done = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (way == BY_SECCOMP)
    done |= LOAD_FILTER(&program);
  else if (way == BY_PRCTL)
    done |= prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  else
    done |= prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
  if (done) {
    perror("seccomp");
    _exit(1);
  }
}

__attribute__((noinline)) static unsigned long mix(unsigned long rounds, unsigned long seed) {
  for (unsigned long i = 0; i < rounds; i++) {
    seed = seed * 6364136223846793005ul + i;
    seed ^= seed >> 29;
  }
  return seed;
}

/* Called for the first time once nothing is allowed any more, some by address only. */
#define STEP(n) \
  __attribute__((noinline)) static unsigned long step##n(unsigned long x) { return mix(2000 + n, x) ^ n; }
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
static unsigned long (*volatile steps[])(unsigned long) = {step0, step1, step2, step3, step4, step5, step6, step7};

__attribute__((noinline)) static double in_floats(double x, int n) { return n ? in_floats(x * 1.25 + n, n - 1) : x; }

static jmp_buf back;
__attribute__((noinline)) static void leave(int value) { longjmp(back, value); }

static int compare(const void *a, const void *b) {
  unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
  return x < y ? -1 : x > y;
}

static unsigned long work(void) {
  unsigned long state = mix(30000000, 1), sorted[64];
  for (unsigned i = 0; i < 400; i++) state = steps[i % 8](state);
  for (unsigned i = 0; i < 64; i++) sorted[i] = state = mix(10, state);
  qsort(sorted, 64, sizeof *sorted, compare);
  char *text = malloc(200);
  if (!setjmp(back)) leave(1);
  snprintf(text, 200, "%lx %g", sorted[7] ^ mix(30000000, state), in_floats(1, 20));
  unsigned long sum = 0;
  for (char *at = text; *at; at++) sum = sum * 31 + (unsigned char)*at;
  free(text);
  return sum;
}

/* Does not end: its stack would be given back, which is not allowed. */
static volatile int gone_on, there;
static volatile unsigned long from_beside;
static void *beside(void *unused) {
  free(malloc(200));
  for (there = 1; !gone_on;) mix(1000, 3);
  unsigned long found = 0;
  for (unsigned i = 0; i < 400; i++) found = steps[i % 8](found);
  for (from_beside = found;;) mix(1000, 3);
}

/* What is left of the process is one line and the end. */
static void say(const char *name, unsigned long number) {
  char line[100];
  int length = snprintf(line, sizeof line, "%s: %lx\n", name, number);
  if (write(1, line, (size_t)length) != length) _exit(2);
}

static void in_child(const char *name, enum way way, unsigned action) {
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    give_up(way, action, 0);
    say(name, work());
    syscall(SYS_exit, 7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("%s: status %d, signal %d\n", name, WEXITSTATUS(status), WTERMSIG(status));
}

/* A thread that was there before goes on, too. */
static void with_thread(const char *name, unsigned action) {
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    pthread_t other;
    pthread_create(&other, 0, beside, 0);
    while (!there) mix(1000, 1);
    give_up(BY_SECCOMP, action, 1);
    gone_on = 1;
    unsigned long found = work();
    while (!from_beside) mix(1000, 1);
    say(name, found ^ from_beside);
    _exit(8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("%s: status %d, signal %d\n", name, WEXITSTATUS(status), WTERMSIG(status));
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  /* What the C library asks the kernel for first. */
  printf("begins\n");
  free(malloc(200));
  in_child("process", BY_SECCOMP, SECCOMP_RET_KILL_PROCESS);
  in_child("thread", BY_SECCOMP, SECCOMP_RET_KILL_THREAD);
  in_child("trap", BY_SECCOMP, SECCOMP_RET_TRAP);
  in_child("error", BY_SECCOMP, SECCOMP_RET_ERRNO | EPERM);
  in_child("this thread only", BY_PRCTL, SECCOMP_RET_KILL_PROCESS);
  in_child("strict", STRICT, 0);
  with_thread("two threads", SECCOMP_RET_KILL_PROCESS);
  mix(60000000, 1);
  give_up(BY_SECCOMP, SECCOMP_RET_KILL_PROCESS, 0);
  printf("itself: %lx\n", work());
  return 3;
}
