// Two modules with internal functions, variables, strings and static locals of the
// same names.
// gate: B
// extra: internal_names_other.c
#include <stdio.h>

static int state = 1;
__attribute__((noinline)) static int helper(int x) { return x + state; }
__attribute__((noinline)) static int counter(void) {
  static int count = 100;
  return count++;
}
static int (*volatile pointer)(int) = helper;
int other(int x);
const char *other_text(void);

int main(void) {
  state = 5;
  printf("%d %d\n", helper(1), other(1));
  printf("%d %d %d\n", counter(), counter(), pointer(2));
  printf("%d %s\n", other(2), other_text());
}
