// Another one, opened and closed by several threads.
#include <stdlib.h>
#include <string.h>
extern int program_add(int), program_sub(int), program_base;
static int *place = &program_base;
static int (*const add)(int) = program_sub;
extern int program_abs(int);
// Not to be folded into its caller.
__attribute__((noinline, optnone)) int program_abs(int x) { return x; }
int more_run(int x) {
  char *text = strdup("text");
  int sum = add(x) + *place + program_abs(-x) + (int)strlen(text);
  free(text);
  return sum;
}
