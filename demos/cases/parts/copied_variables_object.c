#include <stdio.h>

extern int library_count;
extern int library_function(int);
extern char **environ;

int object_round(int n) {
  library_count += n;
  if (n < 5) fprintf(stdout, "round %d\n", n);
  return library_function(library_count);
}
int *object_count(void) { return &library_count; }
int (*object_function(void))(int) { return library_function; }
FILE **object_stdout(void) { return &stdout; }
char ***object_environ(void) { return &environ; }
