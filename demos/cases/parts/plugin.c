// A plugin: it refers to names of the program that opens it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
extern int program_value, program_table[4];
extern int program_function(int);
extern void program_register(const char *, int (*)(int));
__attribute__((weak)) extern int no_such_hook(int);
int (*plugin_pointer)(int) = program_function;
int *plugin_place = &program_table[2];
int program_defined_too(int);
static char *kept;
static int twice(int x) { return program_function(x) + program_function(x); }
__attribute__((constructor)) static void start(void) {
  kept = malloc(20);
  sprintf(kept, "kept %d", program_function(1));
  program_register("twice", twice);
}
__attribute__((destructor)) static void stop(void) {
  printf("destructor: %s\n", kept);
  free(kept);
}
int plugin_run(int x) {
  int (*by_name)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "program_function");
  printf("%d %d %d\n", by_name == program_function, plugin_pointer == program_function, plugin_place == &program_table[2]);
  printf("%d %d\n", dlsym(RTLD_DEFAULT, "program_value") == &program_value, no_such_hook != 0);
  program_value += x;
  return twice(x) + *plugin_place + (by_name ? by_name(1) : 0);
}
int plugin_preempted(int x) { return program_defined_too(x); }
int program_defined_too(int x) { return -x; }
