/* A program whose function returns a string, for `uruk swap`: a line is answered by the string and the
   number of different addresses that were returned with it.

       uruk cc -O2 strings.c -o strings
       uruk live ./strings
       uruk cc -O2 -DTEXT='"one"' -c strings.c -o one.o
       uruk swap PID one.o */
#include <stdio.h>
#include <string.h>

#ifndef TEXT
#define TEXT "first"
#endif

enum { KEPT = 64 };

/* Always 0, which the optimizer does not know: the result is known to no caller. */
static volatile int none;

__attribute__((noinline)) const char *text(void) { return &TEXT[none]; }

int main(void) {
  static const char *kept[KEPT];
  int count = 0;
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    const char *now = text();
    int known = 0, same = 0;
    for (int at = 0; at < count; at++) {
      known |= kept[at] == now;
      same += !strcmp(kept[at], now);
    }
    if (!known && count < KEPT) {
      kept[count++] = now;
      same++;
    }
    printf("%s %d\n", now, same);
    fflush(stdout);
  }
  return 0;
}
