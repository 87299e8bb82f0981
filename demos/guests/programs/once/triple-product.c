/* D := A B C in the loops of `main`, rectangular, on arrays of fixed size. */
#include "once.h"

enum { P = BY_SIZE(1100, 280), Q = BY_SIZE(1200, 300), R = BY_SIZE(1300, 240), S = BY_SIZE(1000, 260) };

static double a[P][Q], b[Q][R], c[R][S], ab[P][R], d[P][S];

int main(void) {
  for (int i = 0; i < P; i++)
    for (int j = 0; j < Q; j++) a[i][j] = (double)((i * 7 + j * 3) % 19) / 19.0;
  for (int i = 0; i < Q; i++)
    for (int j = 0; j < R; j++) b[i][j] = (double)((i * 5 + j) % 23) / 23.0 - 0.5;
  for (int i = 0; i < R; i++)
    for (int j = 0; j < S; j++) c[i][j] = (double)((i + j * 11) % 17) / 170.0;
  for (int i = 0; i < P; i++)
    for (int k = 0; k < Q; k++)
      for (int j = 0; j < R; j++) ab[i][j] += a[i][k] * b[k][j];
  for (int i = 0; i < P; i++)
    for (int k = 0; k < R; k++)
      for (int j = 0; j < S; j++) d[i][j] += ab[i][k] * c[k][j];
  note_reals(d[0], (long)P * S);
  return report("triple-product");
}
