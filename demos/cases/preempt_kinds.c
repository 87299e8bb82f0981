// What a program defines counts for a library if that has the name chosen by a resolver, with
// versions, or weak, and if the program's is weak.
// library: preempted_kinds.c
// gate: D
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int kinds_call(int, int), kinds_through_table(int, int), kinds_versioned(const char *);
int kinds_chosen(int x) { return x * 2; }
int kinds_weak(int x) { return x * 3; }
__attribute__((weak)) int kinds_weak_data = 400;
__attribute__((weak)) int kinds_overridden(int x) { return x * 4; }
char *realpath(const char *path, char *into) {
  return into ? NULL : strdup(path + 1);
}

int main(void) {
  for (int which = 0; which < 4; which++)
    printf("%d %d\n", kinds_call(which, 7), kinds_through_table(which, 7));
  printf("%d\n", kinds_versioned("/a/path/that/is/not/there"));
}
