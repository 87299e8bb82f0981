// Weak symbols: unresolved ones are null, definitions yield to strong ones of other
// modules whichever comes first, and what is chosen is chosen for all.
// gate: B
// extra: weak_strong.c
#include <stdio.h>

extern int nowhere(int) __attribute__((weak));
extern int nothing __attribute__((weak));
__attribute__((weak)) int function(void) { return 1; }
__attribute__((weak)) int variable = 1;
__attribute__((weak)) int only_weak(void) { return 10; }
extern int strong_elsewhere(void) __attribute__((weak));
extern int puts(const char *) __attribute__((weak));
int ask_function(void);
int *ask_variable(void);
static int (*const in_data)(int) = nowhere;
static int *const data_in_data = &nothing;

int main(void) {
  printf("%d %d %d %d\n", nowhere == 0, &nothing == 0, in_data == 0, data_in_data == 0);
  if (nowhere) printf("%d\n", nowhere(1));
  printf("%d %d %d\n", function(), variable, only_weak());
  printf("%d %d\n", ask_function(), ask_variable() == &variable);
  if (strong_elsewhere) printf("%d\n", strong_elsewhere());
  if (puts) puts("libc's, by a weak reference");
}
