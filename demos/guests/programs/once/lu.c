/* A linear system by elimination with pivots: rows are exchanged by their pointers. */
#include "once.h"

enum { N = BY_SIZE(1700, 420) };

KERNEL int eliminate(int n, double **rows, double *right) {
  int exchanges = 0;
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabs(rows[i][k]) > fabs(rows[pivot][k])) pivot = i;
    if (rows[pivot][k] == 0) return -1;
    if (pivot != k) {
      double *row = rows[k], value = right[k];
      rows[k] = rows[pivot], rows[pivot] = row;
      right[k] = right[pivot], right[pivot] = value;
      exchanges++;
    }
    for (int i = k + 1; i < n; i++) {
      double factor = rows[i][k] / rows[k][k];
      rows[i][k] = factor;
      for (int j = k + 1; j < n; j++) rows[i][j] -= factor * rows[k][j];
      right[i] -= factor * right[k];
    }
  }
  for (int i = n - 1; i >= 0; i--) {
    double value = right[i];
    for (int j = i + 1; j < n; j++) value -= rows[i][j] * right[j];
    right[i] = value / rows[i][i];
  }
  return exchanges;
}

int main(void) {
  static double *rows[N], right[N];
  for (int i = 0; i < N; i++) {
    rows[i] = malloc(sizeof(double) * N);
    if (!rows[i]) return 1;
    for (int j = 0; j < N; j++) {
      rows[i][j] = draw_real() - 0.5;
      right[i] += rows[i][j] * (j % 17) / 16.0;
    }
  }
  int exchanges = eliminate(N, rows, right);
  note_reals(right, N);
  printf("%s\n", exchanges >= 0 ? "regular" : "singular");
  for (int i = 0; i < N; i++) free(rows[i]);
  return report("lu");
}
