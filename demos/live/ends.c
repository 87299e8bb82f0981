/* A program that ends by `exit` from a thread, in another folder than it began in, after a copy of it
   ended before. Says whether a file was left alone by the copy.

       ends FILE */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void *end(void *nothing) {
  (void)nothing;
  exit(0);
}

static long long size(const char *file) {
  struct stat found;
  return stat(file, &found) == 0 ? (long long)found.st_size : -1;
}

__attribute__((noinline)) int work(int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) sum = sum * 3 + round;
  return sum;
}

static int (*volatile call)(int) = work;

int main(int count, char **arguments) {
  const char *file = count > 1 ? arguments[1] : "";
  if (chdir("/") != 0) return 2;
  long long before = size(file);
  pid_t copy = fork();
  if (copy == 0) exit(call(1000) == 0 ? 3 : 4);
  int status = 0;
  if (waitpid(copy, &status, 0) != copy || !WIFEXITED(status) || WEXITSTATUS(status) < 3) return 2;
  if (system("exit 5") == -1) return 2;
  puts(size(file) == before ? "left alone" : "written by the copy");
  fflush(stdout);
  pthread_t thread;
  if (pthread_create(&thread, NULL, end, NULL) != 0) return 2;
  for (;;) pause();
}
