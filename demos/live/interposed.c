/* Says in which file the process has functions that copy it, or make any call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  static const char *const names[] = {"_Fork", "clone", "__clone", "syscall"};
  for (int i = 0; i < 4; i++) {
    Dl_info found;
    if (!dladdr(dlsym(RTLD_DEFAULT, names[i]), &found)) return 1;
    const char *end = strrchr(found.dli_fname, '/');
    printf("%s ", end ? end + 1 : found.dli_fname);
  }
  putchar('\n');
  return 0;
}
