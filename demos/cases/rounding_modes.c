// Rounding modes: FLT_ROUNDS, and the x87's control word by inline assembly.
#include <fenv.h>
#include <float.h>
#include <stdio.h>

static unsigned short control(void) {
  unsigned short word;
  __asm__ volatile("fnstcw %0" : "=m"(word));
  return word;
}

static void set(unsigned short word) { __asm__ volatile("fldcw %0" : : "m"(word)); }

int main(void) {
  unsigned short first = control();
  volatile long double one = 1, three = 3;
  for (int mode = 0; mode < 4; mode++) {
    set((unsigned short)((first & ~0xc00) | mode << 10));
    long double third = one / three;
    set(first);
    printf("%d %.25Lf\n", mode, third);
  }
  int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  for (int at = 0; at < 4; at++) {
    fesetround(modes[at]);
    int rounds = FLT_ROUNDS;
    unsigned short word = control();
    fesetround(FE_TONEAREST);
    printf("%d %d\n", rounds, word >> 10 & 3);
  }
  return 0;
}
