/* Functions that a loop in the same file calls, and of whose bodies the compiler made use there.

       -DIGNORED    `ignored` uses its argument, which no call passes any more
       -DCONSTANT   `constant` returns another number, which its callers know
       -DRANGE      `bit` returns more than 0 and 1
       -DNOTHING    `buffer` may return null
       -DRETURNS    `give_up` returns
       -DWRITES     `look` writes to where its argument leads
       -DKEEPS      `look` keeps its argument
       -DOTHER      `same` returns another pointer than its argument
       -DVARIABLE   `touch` changes a variable that its callers have in registers
       -DFITS=N     `touch` adds N: callers know nothing that is not so any more
       -DLINE       `touch` writes a line first
       -DBUMP=N     `bump`, which no other file sees, adds N
       -DELSEWHERE  the loop is in another file, which is this one with
       -DLOOP       and nothing else
       -DAPART      the loop is in the same file, but calls them by one that is left each time */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_ALONE __attribute__((noinline))

#ifndef FITS
#define FITS 1
#endif

void answer(int x);

#ifndef LOOP
static long rounds;
long touched;
int *kept;
volatile int three = 3;

LEFT_ALONE int ignored(int x) {
  touched++;
#ifdef IGNORED
  return (int)touched * 0 + x;
#else
  return (int)touched * 0 + three;
#endif
}

LEFT_ALONE int constant(void) {
  touched++;
#ifdef CONSTANT
  return 8;
#else
  return 7;
#endif
}

LEFT_ALONE int bit(int x) {
  touched++;
#ifdef RANGE
  return (x & 1) + 2;
#else
  return x & 1;
#endif
}

LEFT_ALONE char *buffer(void) {
  static char bytes[8];
  touched++;
#ifdef NOTHING
  if (touched > 1) return 0;
#endif
  return bytes;
}

LEFT_ALONE void give_up(int x) {
  touched += x;
#ifndef RETURNS
  abort();
#endif
}

LEFT_ALONE int look(int *p) {
  touched++;
#ifdef WRITES
  *p += 10;
#endif
#ifdef KEEPS
  kept = p;
#endif
  return *p;
}

LEFT_ALONE int *same(int *p) {
  touched++;
  *p += 1;
#ifdef OTHER
  static int other = 50;
  return &other;
#else
  return p;
#endif
}

LEFT_ALONE void touch(void) {
#ifdef LINE
  fprintf(stderr, "a line\n");
#endif
#ifdef VARIABLE
  rounds += 100;
#endif
  touched += FITS;
}

#ifndef BUMP
#define BUMP 0
#endif
static LEFT_ALONE void bump(int x) { touched += x + BUMP; }

/* A line of what all of them come to. */
static inline __attribute__((always_inline)) void step(int x) {
  int local = x, other = x;
  bump(x);
  rounds++;
  touch();
  rounds++;
  touch();
  int number = ignored(x + 36);
  int known = constant();
  int high = bit(x) > 1;
  int missing = !buffer();
  look(&local);
  int seen = local;
  if (kept) *kept = 70;
  seen += local;
  int pointed = *same(&other) - other;
  int back = 0;
  if (x == 101) {
    give_up(1);
    back = 1;
  }
  printf("%d %d %d %d %d %d %d %ld\n", number, known, high, missing, seen, pointed, back, rounds);
  fflush(stdout);
}

#if defined ELSEWHERE || defined APART
LEFT_ALONE void answer(int x) { step(x); }
#endif
#endif

#if defined LOOP || !defined ELSEWHERE
#if defined LOOP || defined APART
#define NEXT(x) answer(x)
#else
#define NEXT(x) step(x)
#endif

int main(void) {
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    NEXT(line[0]);
  }
  return 0;
}
#endif
