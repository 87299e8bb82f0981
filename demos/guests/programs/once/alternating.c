/* Implicit diffusion, directions in turns: recurrences forth and back along columns, then
 * along rows. Coefficients are local reals of an outer loop. */
#include "once.h"

enum { N = BY_SIZE(700, 140), STEPS = BY_SIZE(80, 80) };

static double u[N][N], v[N][N], p[N], q[N];

KERNEL void sweep(int steps) {
  for (int t = 0; t < steps; t++) {
    double r = 0.4 + 0.01 * (t % 5), side = -r / 2, middle = 1 + r;
    for (int j = 1; j < N - 1; j++) {
      v[0][j] = 1;
      p[0] = 0;
      q[0] = v[0][j];
      for (int i = 1; i < N - 1; i++) {
        double divisor = side * p[i - 1] + middle;
        double right = r / 2 * (u[i][j - 1] + u[i][j + 1]) + (1 - r) * u[i][j];
        p[i] = -side / divisor;
        q[i] = (right - side * q[i - 1]) / divisor;
      }
      v[N - 1][j] = 1;
      for (int i = N - 2; i >= 1; i--) v[i][j] = p[i] * v[i + 1][j] + q[i];
    }
    for (int i = 1; i < N - 1; i++) {
      u[i][0] = 1;
      p[0] = 0;
      q[0] = u[i][0];
      for (int j = 1; j < N - 1; j++) {
        double divisor = side * p[j - 1] + middle;
        double right = r / 2 * (v[i - 1][j] + v[i + 1][j]) + (1 - r) * v[i][j];
        p[j] = -side / divisor;
        q[j] = (right - side * q[j - 1]) / divisor;
      }
      u[i][N - 1] = 1;
      for (int j = N - 2; j >= 1; j--) u[i][j] = p[j] * u[i][j + 1] + q[j];
    }
  }
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) u[i][j] = (double)(i + N - j) / N;
  sweep(STEPS);
  note_reals(u[0], (long)N * N);
  return report("alternating");
}
