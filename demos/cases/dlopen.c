// Libraries opened from inside, and the program's own symbols by name.
// link: -rdynamic
// gate: D
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

__attribute__((noinline)) int own_function(int x) { return x * 7; }
int own_variable = 35;
static int never_called(void) { return 0; }

int main(void) {
  void *math = dlopen("libm.so.6", RTLD_NOW);
  double (*cube)(double) = (double (*)(double))dlsym(math, "cbrt");
  printf("%g\n", cube ? cube(27) : -1);
  printf("%d\n", dlsym(math, "no_such_symbol") == NULL && dlerror() != NULL);
  printf("%d\n", dlopen("no-such-library.so", RTLD_NOW) == NULL);

  int (*function)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "own_function");
  int *variable = dlsym(RTLD_DEFAULT, "own_variable");
  printf("%d %d\n", function == own_function, variable == &own_variable);
  printf("%d\n", function ? function(6) : -1);
  void *self = dlopen(NULL, RTLD_NOW);
  printf("%d\n", dlsym(self, "own_function") == (void *)own_function);
  printf("%d\n", dlsym(self, "main") != NULL);
  printf("%d %d\n", dlsym(self, "puts") != NULL, never_called());
  int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "puts");
  if (next) next("by RTLD_NEXT");
  printf("%d\n", dlclose(math));
}
