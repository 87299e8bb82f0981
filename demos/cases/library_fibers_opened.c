// Libraries with fibers that the program opens after it ran for a while, one of them as what
// another one needs.
// opens: fibers_outer.c fibers_context.c
// opens: fibers_switch.c
// levels: O0 O1-no-passes O2
// modes: lazy tiered moving
// gate: D
// hazard: libraries
#include <dlfcn.h>
#include "parts/fibers.h"
static void (*make)(int, fiber_body *), (*go)(int), (*rest)(int);
#include "parts/resting.h"

static void call_opened(const char *path, const char *prefix) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return;
  }
  char name[64];
  sprintf(name, "%smake", prefix);
  make = (void (*)(int, fiber_body *))dlsym(library, name);
  sprintf(name, "%sgo", prefix);
  go = (void (*)(int))dlsym(library, name);
  sprintf(name, "%srest", prefix);
  rest = (void (*)(int))dlsym(library, name);
  call_fibers();
}

int main(int argc, char **argv) {
  call_fresh(56, 8);
  if (argc != 3) return 1;
  call_opened(argv[1], "fibers_outer_");
  call_opened(argv[2], "fiber_");
}
