// A plugin whose constructor opens another one, with a path the program has.
#include <dlfcn.h>
#include <stdio.h>
extern const char *program_other(void);
extern int program_function(int);
extern void *program_opened;
int opener_value = 5;
static int (*shared_call)(int);
__attribute__((constructor)) static void start(void) {
  void *other = dlopen(program_other(), RTLD_NOW);
  program_opened = other;
  if (!other) {
    printf("not opened: %s\n", dlerror());
    return;
  }
  shared_call = (int (*)(int))dlsym(other, "opened_call");
  printf("constructor: %d %d\n", program_function(1), shared_call ? shared_call(2) : -1);
}
int opener_call(int x) { return program_function(x) + opener_value + shared_call(x); }
