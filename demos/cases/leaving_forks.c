// A fork in the middle of loops that were left: both processes go on in both frames, and end
// their loops; handlers of signals interrupt such loops and loop themselves.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

__attribute__((noinline)) static int count(int rounds) {
  volatile int sum = 0;
  for (int i = 0; i < rounds; i++) sum += i;
  return sum;
}

static void on_signal(int number) { handled += count(number) > 0; }

// Forks in a loop; what the loop carries is there in both.
__attribute__((noinline)) static int forks(int rounds, int deep) {
  int carried[6] = {1, 2, 3, 4, 5, 6};
  unsigned sum = 7;
  for (int i = 0; i < rounds; i++) {
    carried[i % 6] += i;
    sum = sum * 31 + carried[(i + 1) % 6];
    if (i % 5 != 3) continue;
    pid_t child = fork();
    if (child < 0) exit(2);
    if (child == 0) {
      // The rest of this loop, and loops of its own.
      if (deep == 0) _exit((forks(4, 1) + count(10) + (int)(sum & 15)) & 127);
      sum += 1000;
      continue;
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) exit(3);
    printf("%d ", WEXITSTATUS(status));
    fflush(stdout);
    sum += (unsigned)WEXITSTATUS(status);
  }
  if (deep && sum > 1000000) return (int)(sum & 63);
  return (int)(sum & 0xffff) + carried[5];
}

// Interrupted at each pass.
__attribute__((noinline)) static long interrupted(int rounds) {
  long sum = 0;
  int here[3] = {0, 0, 0};
  for (int i = 0; i < rounds; i++) {
    raise(SIGUSR1);
    here[i % 3] += handled;
    sum += here[2] * i;
  }
  return sum + here[0];
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGUSR1, &action, NULL);
  printf("%ld\n", interrupted(25));
  printf("%ld\n", interrupted(60));
  fflush(stdout);
  int result = forks(20, 0);
  printf("\n%d %d\n", result, (int)handled);
}
