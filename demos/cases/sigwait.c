// Signals to the process go to the thread that waits for them.
// flags: -pthread
// gate: D
// hazard: signals
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void *sender(void *arg) {
  (void)arg;
  for (int i = 0; i < 3; i++) kill(getpid(), i == 1 ? SIGINT : SIGUSR1);
  kill(getpid(), SIGTERM);
  return NULL;
}

int main(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, sender, NULL);
  pthread_join(thread, NULL);
  int seen = 0, signal;
  do {
    sigwait(&set, &signal);
    seen |= 1 << signal;
  } while (signal != SIGTERM);
  printf("%x\n", seen);
}
