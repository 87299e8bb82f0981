// Vectors in all places: passed, returned, in structs, lanes that are computed, what the processor
// does with them, and loops that a compiler makes vectors of.
#include <stdio.h>
#include <string.h>
#include <emmintrin.h>
typedef int v4si __attribute__((vector_size(16)));
typedef float v4sf __attribute__((vector_size(16)));
typedef float v2sf __attribute__((vector_size(8)));
typedef double v2df __attribute__((vector_size(16)));
typedef unsigned char v16qi __attribute__((vector_size(16)));
typedef short v8hi __attribute__((vector_size(16)));
__attribute__((noinline)) v4si add(v4si a, v4si b) { return a * 3 + (b >> 2) - (a > b); }
__attribute__((noinline)) v4sf fadd(v4sf a, v4sf b, double z) { return a * b + (float)z; }
__attribute__((noinline)) v2sf pair(v2sf a, float b) { return a * b; }
struct P { v4si a; v2df b; int c; };
__attribute__((noinline)) struct P st(struct P p, v16qi q) { p.a += (v4si)q; p.b *= 2.0; p.c += q[p.c & 15]; return p; }
__attribute__((noinline)) int idx(v4si a, int i, int v) { a[i & 3] = v; return a[(i + 1) & 3] + a[i & 3]; }
__attribute__((noinline)) int mask(const char *p) { __m128i x = _mm_loadu_si128((const __m128i *)p); return _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('a'))); }
__attribute__((noinline)) __m128i mach(__m128i a, __m128i b) {
  __m128i r = _mm_add_epi64(_mm_sad_epu8(a, b), _mm_madd_epi16(a, b));
  r = _mm_xor_si128(r, _mm_packs_epi16(a, b)); r = _mm_add_epi8(r, _mm_packus_epi16(a, b)); r = _mm_xor_si128(r, _mm_packs_epi32(a, b));
  r = _mm_add_epi16(r, _mm_mulhi_epi16(a, b)); r = _mm_xor_si128(r, _mm_mulhi_epu16(a, b)); r = _mm_add_epi8(r, _mm_avg_epu8(a, b)); r = _mm_sub_epi16(r, _mm_avg_epu16(a, b));
  r = _mm_add_epi32(r, _mm_sll_epi32(a, _mm_cvtsi32_si128(5))); r = _mm_xor_si128(r, _mm_srl_epi64(a, _mm_cvtsi32_si128(70))); r = _mm_add_epi16(r, _mm_sra_epi16(b, _mm_cvtsi32_si128(99)));
  r = _mm_xor_si128(r, _mm_srli_epi16(b, 3)); r = _mm_add_epi64(r, _mm_slli_epi64(a, 7)); r = _mm_sub_epi32(r, _mm_srai_epi32(a, 40));
  return _mm_shuffle_epi32(_mm_unpacklo_epi8(r, _mm_unpackhi_epi8(r,a)), 0x1b); }
static void show(const char *n, const void *p, int k) { printf("%s", n); for (int i = 0; i < k; i++) printf(" %02x", ((const unsigned char *)p)[i]); puts(""); }
int main(int argc, char **argv) {
  v4si a = {1, -2, 300000, argc}, b = {7, 9, -1073741824, 5};
  v4si c = add(a, b); show("add", &c, 16);
  v4sf f = fadd((v4sf){1.5f, 2, 3, 4}, (v4sf){.25f, 1e9f, -1, 0}, argc); show("fadd", &f, 16);
  v2sf p = pair((v2sf){3, 4}, 1.5f); show("pair", &p, 8);
  v16qi q; for (int i = 0; i < 16; i++) q[i] = i * 37 + argc;
  struct P s = st((struct P){a, (v2df){1.25, -3}, 9}, q); show("st", &s.a, 16); show("st", &s.b, 16); printf("%d\n", s.c);
  for (int i = 0; i < 6; i++) printf("%d ", idx(a, i + argc, 77 * i)); puts("");
  printf("%x\n", mask("abcabcaaxxaayyaa"));
  __m128i m = mach((__m128i)q, _mm_set_epi16(1, -2, 30000, -30000, 5, 255, 256, -1)); show("mach", &m, 16);
  int arr[100]; long sum = 0; unsigned char by[64]; float fl[33]; double ds = 0;
  for (int i = 0; i < 100; i++) arr[i] = i * i - argc * 50; for (int i = 0; i < 100; i++) sum += arr[i] > 0 ? arr[i] : -arr[i];
  for (int i = 0; i < 64; i++) by[i] = arr[i] + 3; unsigned mx = 0; for (int i = 0; i < 64; i++) if (by[i] > mx) mx = by[i];
  for (int i = 0; i < 33; i++) fl[i] = arr[i] * .5f; for (int i = 0; i < 33; i++) ds += fl[i] * fl[32 - i];
  printf("%ld %u %g\n", sum, mx, ds); return 0; }
