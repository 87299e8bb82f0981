// dladdr names the program's functions and variables, also by addresses inside of them; dlsym finds
// those that are not hidden.
// link: -rdynamic
// gate: E
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

__attribute__((noinline)) int named_function(int x) { return x + 1; }

int variable = 3;
short table[9] = {1, 2};
char zeros[100];
const char constant[] = "constant";
static int own[2] = {4, 5};
__attribute__((visibility("hidden"))) int hidden_variable = 7;
__attribute__((visibility("hidden"), noinline)) int hidden_function(int x) { return x + variable; }
__attribute__((noinline)) static int own_function(int x) { return x - variable; }
int (*volatile function)(int) = named_function;

static void tell(const char *what, const void *address, const void *start) {
  Dl_info info = {0};
  int found = dladdr(address, &info);
  printf("%s: %d %s %d\n", what, found != 0, info.dli_sname ? info.dli_sname : "-",
         info.dli_saddr == (info.dli_sname ? start : NULL));
}

int main(void) {
  printf("%d\n", hidden_function(own_function(4)));
  Dl_info info = {0};
  printf("%d\n", named_function(1));
  int found = dladdr((void *)named_function, &info);
  printf("%d %s %d\n", found != 0, info.dli_sname ? info.dli_sname : "?",
         info.dli_saddr == (void *)named_function);
  found = dladdr((void *)puts, &info);
  printf("%d\n", found != 0);
  tell("inside", (char *)named_function + 1, (void *)named_function);
  tell("variable", &variable, &variable);
  tell("element", &table[5], table);
  tell("zeros", &zeros[70], zeros);
  tell("constant", constant + 3, constant);
  tell("own", own, own);
  tell("hidden", &hidden_variable, &hidden_variable);
  tell("another function", (void *)function, (void *)function);
  info = (Dl_info){0};
  printf("%d\n", dladdr(&info, &info));
  void *program = dlopen(NULL, RTLD_NOW);
  printf("%d %d %d %d\n", dlsym(program, "variable") == &variable,
         dlsym(program, "hidden_variable") == NULL, dlsym(program, "hidden_function") == NULL,
         dlsym(program, "own_function") == NULL);
}
