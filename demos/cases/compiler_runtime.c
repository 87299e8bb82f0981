// Functions that a native link takes from the compiler's runtime library.
#include <complex.h>
#include <stdio.h>

int main(void) {
  volatile __int128 a = ((__int128)7 << 90) + 12345, b = 987654321;
  volatile __float128 q = 2;
  volatile double d = 1.75;
  volatile float f = 3.5f;
  volatile _Complex double z = 1.5 + 2.5 * I, w = 0.5 - 1.0 * I;
  volatile _Float16 h = (_Float16)1.5f;
  printf("%lld %lld\n", (long long)(a / b >> 30), (long long)(a % b));
  printf("%.10g %.10g\n", (double)(unsigned __int128)a, (double)(float)a);
  q = q * 3 / 7 + (__float128)d;
  printf("%.15g %d\n", (double)q, q < 3);
  printf("%.10g\n", __builtin_powi(d, 9) + (double)__builtin_powif(f, 3));
  _Complex double p = z * w, r = z / w;
  printf("%g %g %g %g\n", creal(p), cimag(p), creal(r), cimag(r));
  h = h * (_Float16)f + (_Float16)d;
  printf("%g\n", (double)h);
  volatile unsigned long long u = 0xf0f0f0f0f0f0f0ffull;
  printf("%d %d %d\n", __builtin_popcountll(u), __builtin_clzll(u), __builtin_ffsll((long long)u));
  volatile long double l = 1e20L;
  printf("%lld\n", (long long)((__int128)l / 1000));
}
