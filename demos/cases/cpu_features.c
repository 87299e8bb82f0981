// What the compiler's runtime knows about the CPU is the same under the runtime.
// gate: D
#include <stdio.h>

int main(void) {
  __builtin_cpu_init();
#define SHOW(name) printf("%s %d\n", name, !!__builtin_cpu_supports(name));
  SHOW("sse2") SHOW("sse4.2") SHOW("popcnt") SHOW("avx") SHOW("avx2") SHOW("fma")
  SHOW("avx512f") SHOW("bmi2") SHOW("aes")
  printf("%d %d\n", !!__builtin_cpu_is("intel"), !!__builtin_cpu_is("amd"));
}
