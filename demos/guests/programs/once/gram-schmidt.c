/* Orthonormal columns and what makes the old ones of them: columns are far apart in memory. */
#include "once.h"

enum { M = BY_SIZE(700, 300), N = BY_SIZE(600, 220) };

static double a[M][N], r[N][N], q[M][N];

KERNEL void orthonormalize(void) {
  for (int k = 0; k < N; k++) {
    double norm = 0;
    for (int i = 0; i < M; i++) norm += a[i][k] * a[i][k];
    r[k][k] = sqrt(norm);
    for (int i = 0; i < M; i++) q[i][k] = a[i][k] / r[k][k];
    for (int j = k + 1; j < N; j++) {
      r[k][j] = 0;
      for (int i = 0; i < M; i++) r[k][j] += q[i][k] * a[i][j];
      for (int i = 0; i < M; i++) a[i][j] -= q[i][k] * r[k][j];
    }
  }
}

int main(void) {
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) a[i][j] = draw_real() + (i == j) * 3.0;
  orthonormalize();
  note_reals(q[0], (long)M * N);
  note_reals(r[0], (long)N * N);
  return report("gram-schmidt");
}
