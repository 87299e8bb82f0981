/* Prints what the functions of `edits.cc` answer. New versions are this file with -DLATER, and with
   -DBROUGHT, which uses a variable that a version of `edits.cc` brings. */
#include <stdio.h>
#include <stdlib.h>

long answer(int number, int x);

/* `edits.cc` has a weak one. */
long weak_one(int x) { return x + 50; }

#ifdef LATER
__attribute__((noinline)) long once(long x) { return x + 1; }
#else
static __attribute__((noinline)) long once(long x) { return x; }
#endif

#ifdef BROUGHT
extern long brought;
/* Local now: it is the same variable. */
static
#endif
long asked_often;
long *volatile kept_asked_often = &asked_often;

__attribute__((noinline)) long asked(int number) {
  if (number == 97) return asked_often++;
#ifdef BROUGHT
  brought += 1000;
#endif
#ifdef LATER
  return once(answer(number, 3)) + 1000;
#else
  return once(answer(number, 3));
#endif
}

static void at_end(void) {
#ifdef LATER
  puts("new end");
#else
  puts("old end");
#endif
}

__attribute__((noinline)) int loop(void) {
  char line[64];
  while (fgets(line, sizeof line, stdin)) {
    int number = atoi(line);
    if (number == 99) break;
#ifdef LATER
    printf("later ");
#endif
    printf("%ld\n", number > 0 ? asked(number) : 0);
    fflush(stdout);
    if (number == 98) return 1;
  }
  return 0;
}

int main(void) {
  atexit(at_end);
  puts("ready");
  fflush(stdout);
  return loop();
}
