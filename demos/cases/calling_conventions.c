// First calls in calling conventions that pass or preserve unusual registers: the
// way into the runtime must leave every register as it found it.
// gate: B
#include <stdio.h>

#define COLD __attribute__((noinline))

COLD static long plain(long a, long b, long c, long d, long e, long f, double g, double h,
                       double i, double j, double k, double l, double m, double n, long o) {
  return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 +
         (long)(g * 7 + h * 8 + i * 9 + j * 10 + k * 11 + l * 12 + m * 13 + n * 14) + o * 15;
}

COLD __attribute__((preserve_most)) static void keeps_most(volatile long *p) { *p += 1; }
COLD __attribute__((preserve_all)) static void keeps_all(volatile long *p) { *p += 2; }
COLD __attribute__((preserve_none)) static long keeps_none(long a, long b, long c, long d, long e,
                                                           long f, long g, long h) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
COLD __attribute__((ms_abi)) static long microsoft(long a, double b, long c, double d, long e) {
  return a + (long)(b * 2) + c * 3 + (long)(d * 4) + e * 5;
}
COLD __attribute__((regcall)) static double registers(int a, double b, int c, double d, int e,
                                                      double f, int g, double h) {
  return a + b + c + d * 2 + e + f * 3 + g + h * 4;
}
COLD __attribute__((vectorcall)) static double vectors(double a, double b, int c) {
  return a * b + c;
}
COLD __attribute__((swiftcall)) static long swift(__attribute__((swift_context)) void *context,
                                                  long a) {
  return *(long *)context + a;
}

/* Values alive across a first call that may clobber nothing. */
COLD static double alive(volatile long *p, int which) {
  double v[12];
  long n[8];
  for (int i = 0; i < 12; i++) v[i] = *p * 0.5 + i;
  for (int i = 0; i < 8; i++) n[i] = *p * 3 + i;
  if (which) keeps_all(p); else keeps_most(p);
  double sum = 0;
  for (int i = 0; i < 12; i++) sum += v[i] * (i + 1);
  for (int i = 0; i < 8; i++) sum += (double)(n[i] * (i + 1));
  return sum;
}

COLD static int chained(int n) { return n * 3; }

int main(void) {
  volatile long one = 1;
  printf("%ld\n", plain(one, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  printf("%g %g %ld\n", alive(&one, 0), alive(&one, 1), one);
  printf("%ld\n", keeps_none(one, 2, 3, 4, 5, 6, 7, 8));
  printf("%ld\n", microsoft(one, 2.5, 3, 4.5, 5));
  printf("%g %g\n", registers(1, 2, 3, 4, 5, 6, 7, 8), vectors(2, 3, 4));
  long context = 100;
  printf("%ld\n", swift(&context, one));
  /* The static chain travels in r10. */
  int (*volatile f)(int) = chained;
  printf("%d\n", __builtin_call_with_static_chain(f(14), &context));
}
