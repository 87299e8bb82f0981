// What else a compiler puts at entries: calls of `mcount`, which has its caller's frame,
// not its address; sleds of XRay and room for patches, whose tables a program cannot use,
// as code does not change in place.
// flags: -Xclang -pg -Xclang -fxray-instrument -Xclang -fxray-instruction-threshold=1
#include <stdio.h>

#define PLAIN __attribute__((no_instrument_function, xray_never_instrument))

static unsigned calls, nested;

PLAIN void mcount(void) {
  static int inside;
  if (inside++) nested++;
  calls++;
  inside--;
}

__attribute__((noinline)) static int local(int x) { return x * 2; }
__attribute__((noinline, patchable_function_entry(4, 2))) int global(int x) { return local(x) + 1; }

int main(void) {
  int (*volatile pointer)(int) = global;
  unsigned sum = 0;
  for (int i = 0; i < 2000; i++) sum += (unsigned)(global(i) + pointer(i));
  printf("%u %d %u\n", sum, calls > 2000, nested);
}
