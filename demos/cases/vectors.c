// 128-, 256- and 512-bit vectors as arguments and results of first calls; the
// wide ones only where the CPU has them.
#include <immintrin.h>
#include <stdio.h>

#define WIDE __attribute__((noinline, target("avx512f,avx512bw")))
#define HALF __attribute__((noinline, target("avx2,fma")))

typedef int int4 __attribute__((vector_size(16)));

__attribute__((noinline)) static int4 narrow(int4 a, int4 b, int4 c) { return a * b + c; }

HALF static __m256d half(__m256d a, __m256d b, __m256d c, __m256d d, __m256d e, __m256d f,
                         __m256d g, __m256d h) {
  return _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(a, b), _mm256_mul_pd(c, d)),
                       _mm256_add_pd(_mm256_mul_pd(e, f), _mm256_mul_pd(g, h)));
}

HALF static void run_half(void) {
  __m256d v[8];
  for (int i = 0; i < 8; i++) v[i] = _mm256_set_pd(i, i + 10, i + 20, i + 30);
  __m256d (*volatile f)(__m256d, __m256d, __m256d, __m256d, __m256d, __m256d, __m256d,
                        __m256d) = half;
  double out[4];
  _mm256_storeu_pd(out, f(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]));
  printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
}

WIDE static __m512i wide(__m512i a, __m512i b, __m512i c, __m512i d, __mmask16 mask) {
  return _mm512_mask_add_epi32(c, mask, _mm512_mullo_epi32(a, b), d);
}

WIDE static __mmask64 masks(__mmask64 a, __m512i x, __m512i y) {
  return a ^ _mm512_cmplt_epi8_mask(x, y);
}

WIDE static void run_wide(void) {
  int in[16], out[16];
  for (int i = 0; i < 16; i++) in[i] = i * i - 40;
  __m512i v = _mm512_loadu_si512(in);
  __m512i (*volatile f)(__m512i, __m512i, __m512i, __m512i, __mmask16) = wide;
  __mmask64 (*volatile g)(__mmask64, __m512i, __m512i) = masks;
  _mm512_storeu_si512(out, f(v, v, _mm512_set1_epi32(7), _mm512_set1_epi32(1000), 0xa5f0));
  for (int i = 0; i < 16; i++) printf("%d ", out[i]);
  printf("\n%llx\n", (unsigned long long)g(0x123456789abcdefull, v, _mm512_set1_epi8(3)));
}

int main(void) {
  int4 (*volatile f)(int4, int4, int4) = narrow;
  int4 r = f((int4){1, 2, 3, 4}, (int4){5, 6, 7, 8}, (int4){9, 10, 11, 12});
  printf("%d %d %d %d\n", r[0], r[1], r[2], r[3]);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) run_half();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) run_wide();
}
