/* A program that answers each line with what its variables hold: sources for exchanges are this one,
   with other words defined.

       -DNUMBER=N   what an answer begins with
       -DGROWN      `state` has more fields
       -DLONGER     the static variable `counted` is larger
       -DRED=N      the constant `red` has another number
       -DBEGINS=N   `state` begins with another number
       -DADDED      a new static variable counts
       -DSTARTS     a new constructor
       -DWRITES     `red` is no constant any more
       -DSWAPPED    members of the variable `pair` have changed places
       -DREAL       a member of `pair` is a `float`
       -DNODE       members of a structure that is allocated have changed places */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_ALONE __attribute__((noinline))

#ifndef NUMBER
#define NUMBER 1
#endif
#ifndef RED
#define RED 7
#endif
#ifndef BEGINS
#define BEGINS 5
#endif

struct state {
  long n;
#ifdef GROWN
  long more[8];
#endif
} state = {BEGINS};
long guard[4] = {1, 2, 3, 4};

struct pair {
#ifdef SWAPPED
  int high, low;
#elif defined REAL
  int low;
  float high;
#else
  int low, high;
#endif
} pair = {3, 4};

struct node {
#ifdef NODE
  int right, left;
#else
  int left, right;
#endif
} *volatile node;

struct color {
  const char *name;
  int number;
};
#ifndef WRITES
const
#endif
    struct color red = {"red", RED};
const struct color *volatile kept = &red;

#ifdef LONGER
static long counted[4];
#define COUNTED counted[0]
#else
static long counted;
#define COUNTED counted
#endif

#ifdef STARTS
static long started;
__attribute__((constructor)) static void start(void) { started = 3; }
#endif

LEFT_ALONE long count(int x) {
#ifdef ADDED
  static long added = 100;
  x += (int)added++;
#endif
#ifdef STARTS
  x += (int)started;
#endif
  COUNTED += x;
  return COUNTED + 0 * NUMBER;
}

LEFT_ALONE long stated(int x) {
#ifdef GROWN
  for (int i = 0; i < 8; i++) state.more[i] = 99;
#endif
  state.n += x;
  return state.n * (NUMBER > 0);
}

/* Whether a pointer that was kept is that of the constant, and its number now. */
LEFT_ALONE int colored(void) {
#ifdef WRITES
  red.number++;
#endif
  return (kept == &red) * 1000 + NUMBER * 100 + red.number;
}

/* Nothing, as long as all is where it was. */
LEFT_ALONE long paired(void) { return pair.low * 10 + pair.high - 34; }

LEFT_ALONE long noded(void) {
  if (!node) {
    node = malloc(sizeof *node);
    node->left = 3;
    node->right = 4;
  }
  return node->left * 10 + node->right - 34;
}

LEFT_ALONE int converse(void) {
  static char line[64];
  while (fgets(line, sizeof line, stdin)) {
    int length = (int)strlen(line) - 1;
    long guarded = guard[0] + guard[1] + guard[2] + guard[3];
    guarded += paired() + noded();
    printf("%ld %ld %d %ld\n", count(length), stated(length), colored(), guarded);
    fflush(stdout);
  }
  return 0;
}

int main(void) {
  puts("ready");
  fflush(stdout);
  return converse();
}
