// Bitcode, an object file without position-independent code and shared libraries use the same
// variables of the libraries, and agree on addresses of functions.
// object: copied_variables_object.c
// library: copied_variables_library.c
// levels: O0 O2 O0+nopic O2+nopic
// modes: lazy eager tiered
// gate: B
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern int library_count;
extern int *library_kept(void);
extern int library_step(void);
extern int library_function(int);
extern int (*library_address(void))(int);
int object_round(int n);
int *object_count(void);
int (*object_function(void))(int);
FILE **object_stdout(void);
char ***object_environ(void);
extern char **environ;

static int (*const in_data)(int) = library_function;
static FILE **const stream = &stdout;

int main(void) {
  printf("%d %d\n", library_count, object_round(3));
  library_count += 1000;
  printf("%d %d\n", library_step(), object_round(4));
  printf("%d %d\n", object_count() == &library_count, library_kept() == &library_count);
  printf("%d %d\n", object_stdout() == &stdout, stream == &stdout);
  printf("%d\n", object_function() == library_function && in_data == library_address());
  setenv("COPIED_VARIABLE", "yes", 1);
  printf("%d %d\n", object_environ() == &environ, *object_environ() == environ);
  int sum = 0;
  for (int i = 0; i < 3000; i++) sum += object_round(i) & 7;
  printf("%d %d %d\n", sum, library_count, in_data(1));
}
