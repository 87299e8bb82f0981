/* A program that answers each line by what natively is left out: calls of functions without effects, and
   memory that nothing writes to.
   Sources for exchanges are this one, with other words defined:

       -DNUMBER=N   what `number` returns
       -DHOOKS      `hook` counts
       -DSETS       `set` writes to a table
       -DFIRST      the first entry of a table of functions is set

   -DIN_MAIN: `main` is what calls them, which never ends. */
#include <stdio.h>

#define LEFT_ALONE __attribute__((noinline))

#ifndef NUMBER
#define NUMBER 23
#endif

static volatile int hooked, calls;
static int table[8] = {1, 2, 3, 4, 5, 6, 7, 8};

LEFT_ALONE int number(void) { return NUMBER; }

LEFT_ALONE void hook(int x) {
#ifdef HOOKS
  hooked += x;
#else
  (void)x;
#endif
}

LEFT_ALONE int twice(int x) { calls++; return 2 * x; }
LEFT_ALONE int thrice(int x) { calls++; return 3 * x; }
static int (*functions[2])(int) = {twice, thrice};

LEFT_ALONE int get(int at) {
  calls++;
  return table[at & 7] + functions[at & 1](1);
}

LEFT_ALONE void set(int at) {
  calls++;
#ifdef SETS
  table[at & 7] = 100;
#else
  (void)at;
#endif
#ifdef FIRST
  functions[0] = thrice;
#endif
}

#ifndef IN_MAIN
LEFT_ALONE
#else
static inline __attribute__((always_inline))
#endif
void answer(void) {
  hook(7);
  set(2);
  printf("%d %d %d\n", number(), hooked, get(2));
  fflush(stdout);
}

int main(void) {
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) answer();
  return 0;
}
