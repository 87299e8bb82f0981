// Libraries find the program's data and thread-locals in the list of `dl_iterate_phdr`: on any
// thread, in a handler of a signal, and in a child.
// library: listed_data_library.c
// flags: -pthread
// link: -pthread
// vary: --no-preempt
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "parts/listed_data.h"

#ifndef THREAD_LOCAL_BYTES
#define THREAD_LOCAL_BYTES 16
#endif

int data = 5;
static long zeros[1000];
const char constant[] = "constant";
const char *const table[] = {"one", "two"};
static _Thread_local char mine[THREAD_LOCAL_BYTES] = "mine";

static struct looked here(void) {
  static int local = 7;
  struct looked found;
  memset(&found, 0, sizeof found);
  found.at[DATA] = &data;
  found.at[ZEROS] = &zeros[999];
  found.at[CONSTANT] = constant;
  found.at[TABLE] = table;
  found.at[LOCAL] = &local;
  mine[1]++;
  found.tls = mine;
  return found;
}

static void tell(const char *where) {
  struct looked found = here();
  int result = look(&found);
  char line[200];
  int length = snprintf(line, sizeof line, "%s: %d named %d odd %d variables %d %d %d constant %d thread-local %d %d\n",
      where, result, found.named, found.odd, found.seen[DATA], found.seen[ZEROS], found.seen[LOCAL],
      found.seen[CONSTANT] != 0 && found.seen[TABLE] != 0, found.tls_seen, found.tls_same);
  write(1, line, length);
}

static void handler(int signal) { (void)signal; tell("handler"); }

static void *thread(void *argument) {
  tell(argument);
  return 0;
}

static int first(struct dl_phdr_info *info, size_t size, void *named) {
  (void)size;
  *(int *)named = info->dlpi_name[0] != 0;
  return 9;
}

int main(void) {
  tell("main");
  struct looked found = here();
  found.stop = 1;
  int result = look(&found);
  printf("stopped: %d after %d\n", result, found.entries);
  int named = 1;
  result = dl_iterate_phdr(first, &named);
  printf("own: %d named %d\n", result, named);
  fflush(stdout);
  pthread_t other;
  pthread_create(&other, 0, thread, "thread");
  pthread_join(other, 0);
  signal(SIGUSR1, handler);
  raise(SIGUSR1);
  pid_t child = fork();
  if (child == 0) {
    tell("child");
    _exit(3);
  }
  int status;
  waitpid(child, &status, 0);
  printf("%d\n", WEXITSTATUS(status));
}
