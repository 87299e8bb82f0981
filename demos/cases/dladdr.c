// dladdr names the program's functions.
// link: -rdynamic
// gate: E
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

__attribute__((noinline)) int named_function(int x) { return x + 1; }

int main(void) {
  Dl_info info = {0};
  printf("%d\n", named_function(1));
  int found = dladdr((void *)named_function, &info);
  printf("%d %s %d\n", found != 0, info.dli_sname ? info.dli_sname : "?",
         info.dli_saddr == (void *)named_function);
  found = dladdr((void *)puts, &info);
  printf("%d\n", found != 0);
}
