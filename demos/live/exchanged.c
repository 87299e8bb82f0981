/* A program that answers each line, in a loop that another function begins anew for the line `again`,
   or for `close`, after it has closed all files that it did not open.
   Sources for exchanges are this one, with other words defined:

       -DNUMBER=N   what `number` and `converse` begin with
       -DSMALL=N    what `small` adds
       -DWIDE       `scaled` has an argument more
       -DREADS      `noted` reads a variable that natively nobody does
       -DASKS       `asks` asks the dynamic loader: natively only
       -DCHANGED=N  what `asks` adds */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEFT_ALONE __attribute__((noinline))

#ifndef NUMBER
#define NUMBER 10
#endif
#ifndef SMALL
#define SMALL 1
#endif
#ifndef CHANGED
#define CHANGED 0
#endif

/* Written and never read natively, so it is not there. */
static int seen;

static char line[64];

LEFT_ALONE int noted(int x) {
#ifdef READS
  x += seen;
#else
  seen = x;
#endif
  return x;
}

LEFT_ALONE int number(int x) {
  return NUMBER * 100 + noted(x);
}

static inline int small(int x) { return 3 * x + SMALL; }

LEFT_ALONE int asks(int x) {
#ifdef ASKS
  if (!dlsym(RTLD_DEFAULT, "puts")) return -1;
#endif
  return small(x) + CHANGED;
}

#ifdef WIDE
LEFT_ALONE long scaled(long x, long by) { return x * by; }
#define SCALED(x) scaled(x, 1000)
#else
LEFT_ALONE int scaled(int x) { return x * 7; }
#define SCALED(x) (long)scaled(x)
#endif

LEFT_ALONE long total(int x) { return SCALED(x); }

/* Whether it is to begin anew, and how. */
enum { ENDS, AGAIN, CLOSES };
LEFT_ALONE int converse(void) {
  while (fgets(line, sizeof line, stdin)) {
    if (!strcmp(line, "again\n")) return AGAIN;
    if (!strcmp(line, "close\n")) return CLOSES;
    int length = (int)strlen(line) - 1;
    printf("%d %d %d %ld\n", NUMBER, number(length), asks(length), total(length));
    fflush(stdout);
  }
  return 0;
}

int main(void) {
  puts("ready");
  fflush(stdout);
  for (int next; (next = converse()) != ENDS;) {
    for (int file = 3; next == CLOSES && file < 4096; file++) close(file);
  }
  return 0;
}
