// 128-bit integers, whose division lives in the compiler's runtime.
#include <stdio.h>

typedef unsigned __int128 u128;
typedef __int128 i128;

__attribute__((noinline)) static void print(u128 v) {
  char text[40], *p = text + 39;
  *p = 0;
  do *--p = (char)('0' + (int)(v % 10)); while (v /= 10);
  puts(p);
}

__attribute__((noinline)) static i128 mix(i128 a, int b, i128 c, long d, i128 e) {
  return a * b - c / d + (e >> 3);
}

int main(void) {
  volatile u128 big = ((u128)0x123456789abcdef0u << 64) | 0xfedcba9876543210u;
  print(big);
  print(big * big);
  print(big / 1000000007);
  print(big % ((u128)1 << 70));
  i128 m = mix((i128)big, -3, -(i128)(big >> 5), 77, -1);
  print(m < 0 ? (u128)-m : (u128)m);
  printf("%d %.6e %.6e\n", m < 0, (double)big, (double)(float)(i128)m);
  volatile double d = 1e30;
  print((u128)d);
  i128 r;
  printf("%d %d\n", __builtin_mul_overflow((i128)big, (i128)big, &r),
         __builtin_add_overflow((i128)1, (i128)2, &r));
}
