// Block addresses that travel: differences in a table, a label passed to another
// function and back, a label kept in a global between calls.
#include <stdio.h>

static void *resume_at;
static int local;

__attribute__((noinline)) static void *same(void *p) { return p; }

/* A generator by label: every call goes on where the last one stopped. */
__attribute__((noinline)) static int generate(void) {
  if (resume_at) goto *resume_at;
  for (local = 0; local < 3; local++) {
    resume_at = &&again;
    return local * 10;
  again:;
  }
  resume_at = &&finished;
finished:
  return -1;
}

__attribute__((noinline)) static int relative(int which) {
  static const int offset[] = {0, &&two - &&one, &&three - &&one};
  goto *same(&&one + offset[which]);
one: return 100;
two: return 200;
three: return 300;
}

int main(void) {
  for (int i = 0; i < 5; i++) printf("%d\n", generate());
  for (int i = 0; i < 3; i++) printf("%d\n", relative(i));
}
