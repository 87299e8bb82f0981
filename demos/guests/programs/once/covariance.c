/* Covariances of columns, with arrays of variable length in the function's frame. */
#include "once.h"

enum { N = BY_SIZE(850, 380), M = BY_SIZE(750, 320) };

static double data[N][M], result[M][M];

KERNEL void covariances(int n, int m, double data[n][m], double result[m][m]) {
  double mean[m], deviation[m];
  for (int j = 0; j < m; j++) {
    mean[j] = 0;
    for (int i = 0; i < n; i++) mean[j] += data[i][j];
    mean[j] /= n;
    deviation[j] = 0;
    for (int i = 0; i < n; i++) {
      data[i][j] -= mean[j];
      deviation[j] += data[i][j] * data[i][j];
    }
    deviation[j] = sqrt(deviation[j] / n) + 0.1;
  }
  for (int i = 0; i < m; i++)
    for (int j = i; j < m; j++) {
      double sum = 0;
      for (int k = 0; k < n; k++) sum += data[k][i] * data[k][j];
      result[i][j] = result[j][i] = sum / (n - 1.0) / (deviation[i] * deviation[j]);
    }
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < M; j++) data[i][j] = draw_real() + (double)(i * j % 13) / 13;
  covariances(N, M, data, result);
  note_reals(result[0], (long)M * M);
  return report("covariance");
}
