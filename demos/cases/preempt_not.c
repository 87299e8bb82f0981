// Where libraries are left alone, what the program allocates by its own functions is its own,
// what libraries allocate is theirs, and the log says so.
// options: --no-preempt -v
// log: do not see this definition .. malloc
// levels: O0
// gate: D
#include <stdio.h>
#include <string.h>
#include <stddef.h>

static char room[4096];
static size_t used;
void *malloc(size_t size) {
  void *p = room + used;
  used += (size + 15) & ~(size_t)15;
  return used > sizeof room ? NULL : p;
}

int main(void) {
  char *text = malloc(10);
  strcpy(text, "text");
  printf("%s %d\n", text, text == room);
}
