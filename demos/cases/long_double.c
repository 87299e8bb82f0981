// 80-bit floating point: arithmetic, arguments, results, libm, conversions.
#include <float.h>
#include <math.h>
#include <stdio.h>

__attribute__((noinline)) static long double poly(long double x, int a, long double y) {
  return x * x * a - y / 3.0L;
}

__attribute__((noinline)) static _Complex long double turn(_Complex long double z) {
  return z * z + 1.0L;
}

int main(void) {
  volatile long double x = 1.0L / 3.0L;
  printf("%.20Lg %d\n", x, LDBL_MANT_DIG);
  printf("%.20Lg\n", poly(x, 7, sqrtl(2.0L)));
  printf("%.18Lg %.18Lg\n", sinl(x), powl(x, 0.1L));
  _Complex long double z = turn(1.5L + 2.5L * (_Complex long double)1.0iL);
  printf("%.10Lg %.10Lg\n", __real__ z, __imag__ z);
  printf("%lld %llu %d\n", (long long)(x * 1e18L), (unsigned long long)(x * 5e19L), (int)x);
  long double (*volatile f)(long double) = fabsl;
  printf("%Lg %Lg\n", f(-x), nextafterl(1.0L, 2.0L) - 1.0L);
}
