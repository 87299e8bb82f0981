// A library besides those a compiler driver links: its functions are found when the
// program is loaded, and from `dlsym` in the global scope.
// link: -lmvec
// options: --library libmvec.so.1
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

typedef double pair __attribute__((vector_size(16)));
extern pair _ZGVbN2v_exp(pair);

int main(void) {
  pair (*volatile exponent)(pair) = _ZGVbN2v_exp;
  pair sum = {0, 0};
  for (int i = 0; i < 1000; i++) sum += exponent((pair){i / 1000.0, -i / 1000.0});
  printf("%.6f %.6f\n", sum[0], sum[1]);
  pair direct = _ZGVbN2v_exp((pair){0, 0});
  printf("%g %g\n", direct[0], direct[1]);
  printf("%d\n", dlsym(RTLD_DEFAULT, "_ZGVbN2v_exp") == (void *)exponent);
}
