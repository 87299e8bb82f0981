// Loops across whose heads vectors, wide integers, long doubles and pairs live, and that are left.
#include <stdio.h>
typedef int v4 __attribute__((vector_size(16)));
typedef unsigned char vb __attribute__((vector_size(16)));
typedef float v2f __attribute__((vector_size(8)));
typedef double v4d __attribute__((vector_size(32)));
__attribute__((noinline)) v4 f1(v4 a, int n) { for (int i = 0; i < n; i++) a = a * 3 + (v4){i, -i, i ^ 5, 1}; return a; }
__attribute__((noinline)) void f2(int n, double *o) { v2f b = {1, 2}; long double l = 1; unsigned __int128 w = n; vb c = {0}; v4 a = {n, 2, 3, 4}; short s = 0; float g = 1; double h = 2; long x1 = 1, x2 = 2, x3 = 3, x4 = 4, x5 = 5, x6 = 6, x7 = 7;
  for (int i = 0; i < n; i++) { b = b * 0.999f + (v2f){i, 1}; l = l * 0.9999L + i; w = w * 12345678901234567ull + i; c += (unsigned char)(i); c ^= c << 1; a += a >> 3; s += i; g += 1; h *= 1.0001; x1 += x2 ^ i; x2 += x3; x3 ^= x4 + i; x4 += x5; x5 -= x6; x6 += x7 * 3; x7 ^= x1 >> 3; }
  o[0] = b[0] + b[1]; o[1] = l; o[2] = (double)w; o[3] = c[0] + 256. * c[15]; o[4] = a[0] + a[3]; o[5] = s + g + h + x1 + x2 + x3 + x4 + x5 + x6 + x7; }
__attribute__((noinline)) int sum(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] * p[i]; return s; }
__attribute__((noinline)) float wide(int n) { v4d d = {1, 2, 3, 4}; for (int i = 0; i < n; i++) d = d * 1.00001 + (v4d){i, 1, 2, -i}; return d[0] + d[3] * 3 + d[1]; }
__attribute__((noinline)) int ov(int n) { int s = 1, o = 0; for (int i = 0; i < n; i++) { int r; if (__builtin_mul_overflow(s, 3, &r)) o++; s = r ^ i; } return s + o; }
int main(int argc, char **argv) { int p[4000]; for (int i = 0; i < 4000; i++) p[i] = i * argc; double o[6];
  for (int k = 0; k < 3; k++) { v4 a = f1((v4){1, 2, 3, 4}, 20000); printf("%d %d %d %d\n", a[0], a[1], a[2], a[3]); f2(20000 + k, o); for (int i = 0; i < 6; i++) printf("%.15g ", o[i]); printf("\n%d %g %d\n", sum(p, 4000), wide(10000), ov(20000)); } }
