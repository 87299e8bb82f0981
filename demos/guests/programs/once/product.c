/* C := beta C + alpha A B, rows whose length the function is told. */
#include "once.h"

enum { N = BY_SIZE(1200, 280) };

static double a[N][N], b[N][N], c[N][N];

KERNEL void product(int n, double alpha, double beta, double c[n][n], double a[n][n], double b[n][n]) {
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) c[i][j] *= beta;
    for (int k = 0; k < n; k++)
      for (int j = 0; j < n; j++) c[i][j] += alpha * a[i][k] * b[k][j];
  }
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      a[i][j] = draw_real();
      b[i][j] = draw_real() - 0.5;
      c[i][j] = draw_real();
    }
  product(N, 0.25, 1.5, c, a, b);
  note_reals(c[0], (long)N * N);
  return report("product");
}
