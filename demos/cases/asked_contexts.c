// A program that asks the C library by name for what makes contexts and swaps them: nobody
// tells of the stacks.
// levels: O0 O1-no-passes O2
// modes: lazy tiered moving
// gate: D
// hazard: libraries
#include <dlfcn.h>
#include <ucontext.h>
static int (*get)(ucontext_t *), (*swap)(ucontext_t *, const ucontext_t *);
static void (*prepare)(ucontext_t *, void (*)(void), int, ...);
#define getcontext get
#define swapcontext swap
#define makecontext prepare
#include "parts/fibers_context.c"
#define make fiber_make
#define go fiber_go
#define rest fiber_rest
#include "parts/resting.h"

int main(void) {
  void *library = dlopen("libc.so.6", RTLD_NOW);
  *(void **)&get = dlsym(library, "getcontext");
  *(void **)&swap = dlsym(library, "swapcontext");
  *(void **)&prepare = dlsym(library, "makecontext");
  call_fibers();
}
