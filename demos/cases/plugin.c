// A plugin opened with RTLD_NOW finds the program's functions and data, in its constructor,
// too; the program finds its own names, and a name that both define is the program's. Closed
// and opened again.
// opens: plugin.c
// link: -rdynamic
// gate: D
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int program_value = 3, program_table[4] = {1, 2, 30, 4};
static int bonus;
__attribute__((noinline)) int program_function(int x) { return x * 100 + bonus; }
int program_defined_too(int x) { return x + 1000; }
static int (*registered)(int);
void program_register(const char *name, int (*function)(int)) {
  printf("registers %s\n", name);
  registered = function;
}

int main(int argc, char **argv) {
  if (argc != 2) return 1;
  for (int round = 0; round < 2; round++) {
    void *plugin = dlopen(argv[1], RTLD_NOW | (round ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!plugin) {
      printf("%s\n", dlerror());
      return 1;
    }
    int (*run)(int) = (int (*)(int))dlsym(plugin, "plugin_run");
    int (*preempted)(int) = (int (*)(int))dlsym(plugin, "plugin_preempted");
    printf("%d %d\n", run(4), program_value);
    printf("%d\n", preempted(5));
    long sum = 0;
    for (int i = 0; i < 1000000; i++) sum += registered(i & 3);
    bonus++;
    printf("%ld %d\n", sum, registered(1));
    printf("%d\n", dlclose(plugin));
  }
  void *self = dlopen(NULL, RTLD_NOW);
  printf("%d\n", dlsym(self, "program_value") == &program_value);
  printf("%d\n", dlsym(RTLD_DEFAULT, "malloc") == (void *)malloc);
}
