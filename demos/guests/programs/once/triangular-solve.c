/* X with L X = B, for a lower triangular L and many right sides at once. */
#include "once.h"

enum { N = BY_SIZE(1800, 420), M = BY_SIZE(1500, 300) };

KERNEL void solve(int n, int m, const double *restrict l, double *restrict x) {
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < i; k++) {
      double factor = l[(long)i * n + k];
      for (int j = 0; j < m; j++) x[(long)i * m + j] -= factor * x[(long)k * m + j];
    }
    for (int j = 0; j < m; j++) x[(long)i * m + j] /= l[(long)i * n + i];
  }
}

int main(void) {
  double *l = malloc(sizeof(double) * N * N), *x = malloc(sizeof(double) * N * M);
  if (!l || !x) return 1;
  for (long i = 0; i < N; i++)
    for (long j = 0; j < N; j++) l[i * N + j] = i == j ? 2 + draw_real() : (draw_real() - 0.5) / N;
  for (long i = 0; i < (long)N * M; i++) x[i] = draw_real();
  solve(N, M, l, x);
  note_reals(x, (long)N * M);
  free(l);
  free(x);
  return report("triangular-solve");
}
