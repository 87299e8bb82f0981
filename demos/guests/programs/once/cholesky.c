/* L with L L' = A, in place, row by row. */
#include "once.h"

enum { N = BY_SIZE(1600, 440) };

static double a[N][N];

KERNEL void factor(int n, double a[n][n]) {
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++) {
      for (int k = 0; k < j; k++) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
    for (int k = 0; k < i; k++) a[i][i] -= a[i][k] * a[i][k];
    a[i][i] = sqrt(a[i][i]);
  }
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) a[i][j] = 1.0 / (1 + abs(i - j)) + (i == j) * 4.0;
  factor(N, a);
  note_reals(a[0], (long)N * N);
  return report("cholesky");
}
