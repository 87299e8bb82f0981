// The floating-point environment: no exception flag is set when main starts, and
// first calls leave flags, rounding and control bits alone in both directions.
// gate: B
#pragma STDC FENV_ACCESS ON
#include <fenv.h>
#include <stdio.h>
#include <xmmintrin.h>

#define FUNCTIONS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define DEFINE(n)                                                              \
  __attribute__((noinline)) static double f##n(double a, double b) {           \
    volatile double x = a, y = b;                                              \
    return x / y;                                                              \
  }                                                                            \
  __attribute__((noinline)) static int g##n(int x) { __asm__ volatile("" : "+r"(x)); return x; }
FUNCTIONS(DEFINE)

static int at_start = -1;
__attribute__((constructor)) static void early(void) { at_start = fetestexcept(FE_ALL_EXCEPT); }

int main(void) {
  printf("%d %d %d\n", at_start, fetestexcept(FE_ALL_EXCEPT), fegetround() == FE_TONEAREST);
  printf("%x\n", _mm_getcsr());
#define QUIET(n) g##n(n);
  FUNCTIONS(QUIET)
  printf("%d\n", fetestexcept(FE_ALL_EXCEPT));

  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
  double (*const f[])(double, double) = {f0, f1, f2, f3};
  for (int i = 0; i < 4; i++) {
    fesetround(modes[i]);
    double r = f[i](1, 3), s = f[i](-1, 3);
    int kept = fegetround() == modes[i];
    fesetround(FE_TONEAREST);
    printf("%a %a %d\n", r, s, kept);
  }

  feclearexcept(FE_ALL_EXCEPT);
  volatile double inf = f4(1, 0);
  printf("%d %g\n", fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO, inf);
  feclearexcept(FE_ALL_EXCEPT);
  feraiseexcept(FE_UNDERFLOW);
  double exact = f5(6, 3);
  printf("%d %g\n", fetestexcept(FE_ALL_EXCEPT) == FE_UNDERFLOW, exact);

  unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040); /* flush to zero, denormals are zero */
  double flushed = f6(1e-310, 1);
  int kept = (_mm_getcsr() & 0x8040) == 0x8040;
  _mm_setcsr(saved);
  printf("%g %d %g\n", flushed, kept, f7(1e-310, 1));

  unsigned short control, changed = 0x027f; /* x87: double precision */
  __asm__ volatile("fnstcw %0" : "=m"(control));
  __asm__ volatile("fldcw %0" : : "m"(changed));
  unsigned short seen;
  printf("%x\n", control);
  __asm__ volatile("fnstcw %0" : "=m"(seen));
  __asm__ volatile("fldcw %0" : : "m"(control));
  printf("%x\n", seen);
}
