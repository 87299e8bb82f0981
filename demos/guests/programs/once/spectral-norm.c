/* The greatest singular value of a matrix that is computed and not stored. */
#include "once.h"

enum { N = BY_SIZE(3800, 700), ROUNDS = 10 };

static double entry(int i, int j) { return 1.0 / ((i + j) * (i + j + 1) / 2 + i + 1); }

KERNEL double norm(int n, double *u, double *v, double *w) {
  for (int round = 0; round < ROUNDS; round++) {
    for (int half = 0; half < 2; half++) {
      double *from = half ? v : u, *to = half ? u : v;
      for (int i = 0; i < n; i++) {
        w[i] = 0;
        for (int j = 0; j < n; j++) w[i] += entry(i, j) * from[j];
      }
      for (int i = 0; i < n; i++) {
        to[i] = 0;
        for (int j = 0; j < n; j++) to[i] += entry(j, i) * w[j];
      }
    }
  }
  double uv = 0, vv = 0;
  for (int i = 0; i < n; i++) {
    uv += u[i] * v[i];
    vv += v[i] * v[i];
  }
  return sqrt(uv / vv);
}

int main(void) {
  static double u[N], v[N], w[N];
  for (int i = 0; i < N; i++) u[i] = 1;
  note_real(norm(N, u, v, w));
  return report("spectral-norm");
}
