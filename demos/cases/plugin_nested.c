// The constructor of a plugin opens another one, which finds the program's names, too, in
// constant data that is closed for writing as well, and one chosen by a resolver; both are closed and opened again, and the
// last time with their own names first.
// opens: plugin_opener.c
// opens: plugin_opened.c
// link: -rdynamic
// gate: D
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int program_value = 7;
void *program_opened;
static const char *other;
static int calls;
const char *program_other(void) { return other; }
int program_function(int x) { calls++; return x * 10; }
static int first(int x) { return x * 100; }
static int (*choose(void))(int) { return first; }
int program_chosen(int x) __attribute__((ifunc("choose")));
__attribute__((weak)) int program_weak(int x) { return x + 1; }

int main(int argc, char **argv) {
  if (argc != 3) return 1;
  other = argv[2];
  for (int round = 0; round < 4; round++) {
    void *plugin = dlopen(argv[1], round == 3 ? RTLD_NOW | RTLD_DEEPBIND : RTLD_LAZY);
    if (!plugin || !program_opened) {
      printf("%s\n", dlerror());
      return 1;
    }
    int (*call)(int) = (int (*)(int))dlsym(plugin, "opener_call");
    int (*weak)(int) = (int (*)(int))dlsym(program_opened, "opened_weak");
    printf("%d %d %d\n", call(round), weak(round), calls);
    printf("%d %d\n", dlclose(plugin), dlclose(program_opened));
  }
}
