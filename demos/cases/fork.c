// By fork, parent and children go on calling new functions, also children of children, a
// fork out of a thread, and a fork while other threads compile.
// flags: -pthread
// gate: D
// timeout: 90
// repeat: 2
// hazard: fork
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROW(X, r) X(r##0) X(r##1) X(r##2) X(r##3) X(r##4) X(r##5) X(r##6) X(r##7)
#define ALL(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3) ROW(X, 4) ROW(X, 5)
#define DEFINE(n) \
  __attribute__((noinline)) static int f##n(int x) { __asm__ volatile("" : "+r"(x)); return x * 3 + 0x##n; }
#define ADDRESS(n) f##n,
ALL(DEFINE)
static int (*const functions[])(int) = {ALL(ADDRESS)};

/* Only this one is first called in a child; the parent follows later. */
__attribute__((noinline)) static int child_first(int x) { __asm__ volatile("" : "+r"(x)); return x + 1000; }
static int variable = 1;

static int some(int from, int to) {
  int sum = 0;
  for (int i = from; i < to; i++) sum = functions[i](sum) & 0xffff;
  return sum;
}

static int in_child(int (*work)(void)) {
  int ends[2], answer = -1, status;
  if (pipe(ends)) exit(99);
  pid_t child = fork();
  if (child == 0) {
    int value = work();
    if (write(ends[1], &value, sizeof value) != sizeof value) _exit(98);
    _exit(17);
  }
  close(ends[1]);
  if (read(ends[0], &answer, sizeof answer) != sizeof answer) answer = -2;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 17 ? answer : -3;
}

static int leaf(void) { variable = 50; return some(0, 48) + child_first(variable); }
static int middle(void) { return some(4, 12) + in_child(leaf); }
static int quick(void) { return child_first(7) + some(20, 30); }

static void *in_thread(void *arg) {
  *(int *)arg = in_child(quick);
  return NULL;
}

static void *compiling(void *arg) {
  *(int *)arg = some(30, 48);
  return NULL;
}

int main(void) {
  printf("%d\n", some(0, 4));
  printf("%d\n", in_child(leaf));
  printf("%d %d\n", in_child(middle), variable);
  printf("%d\n", some(0, 16));
  int from_thread = 0, compiled = 0;
  pthread_t a, b;
  pthread_create(&b, NULL, compiling, &compiled);
  pthread_create(&a, NULL, in_thread, &from_thread);
  int mine = in_child(quick);
  pthread_join(a, NULL);
  pthread_join(b, NULL);
  printf("%d %d %d\n", mine, from_thread, compiled);
  int total = 0;
  for (int i = 0; i < 20; i++) total += in_child(leaf);
  printf("%d %d\n", total, child_first(1));
  printf("%d\n", some(0, 48));
}
