// Handlers: plain, with information, on an alternate stack, nested, masked; and out of
// a handler by siglongjmp, for a real fault too.
// gate: D
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t seen, nested, on_alternate;
static sigjmp_buf out;
static char *stack;

static void plain(int signal) {
  seen = signal;
  if (signal == SIGUSR2) raise(SIGUSR1);
}
static void informed(int signal, siginfo_t *info, void *context) {
  (void)context;
  char here;
  on_alternate = &here >= stack && &here < stack + 65536;
  nested = info->si_pid == getpid() && signal == SIGALRM;
}
static void fault(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  siglongjmp(out, info->si_addr == (void *)16 ? 2 : 1);
}

__attribute__((noinline)) static void install(int signal, void (*f)(int, siginfo_t *, void *), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = f;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(signal, &action, NULL);
}

int main(void) {
  signal(SIGUSR1, plain);
  signal(SIGUSR2, plain);
  raise(SIGUSR2);
  printf("%d\n", seen == SIGUSR2 || seen == SIGUSR1);

  stack = malloc(65536);
  stack_t alternate = {.ss_sp = stack, .ss_size = 65536};
  stack_t before;
  sigaltstack(&alternate, &before);
  printf("%d\n", before.ss_flags == SS_DISABLE);
  install(SIGALRM, informed, SA_ONSTACK);
  kill(getpid(), SIGALRM);
  printf("%d %d\n", nested, on_alternate);

  install(SIGSEGV, fault, SA_ONSTACK);
  for (int i = 0; i < 3; i++) {
    int code = sigsetjmp(out, 1);
    if (code == 0) {
      *(volatile int *)(uintptr_t)16 = 1;
    } else {
      printf("fault %d\n", code);
    }
  }

  sigset_t set, old, pending;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, &old);
  int unblocked = 1;
  for (int s = 1; s < 32; s++) unblocked &= !sigismember(&old, s);
  seen = 0;
  raise(SIGUSR1);
  sigpending(&pending);
  printf("%d %d %d\n", unblocked, seen, sigismember(&pending, SIGUSR1));
  sigprocmask(SIG_SETMASK, &old, NULL);
  printf("%d\n", seen == SIGUSR1);
  struct sigaction now;
  int foreign = 0;
  for (int s = 1; s < 32; s++)
    if (s != SIGUSR1 && s != SIGUSR2 && s != SIGALRM && s != SIGSEGV && sigaction(s, NULL, &now) == 0)
      foreign += now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
  printf("%d\n", foreign);
}
