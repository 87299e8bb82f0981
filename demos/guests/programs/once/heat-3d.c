/* Heat in a cube: four loops in each other, arrays by pointers to planes. */
#include "once.h"

enum { N = BY_SIZE(130, 32), STEPS = BY_SIZE(160, 120) };

static double a[N][N][N], b[N][N][N];

static void step(double to[N][N][N], double from[N][N][N]) {
  for (int i = 1; i < N - 1; i++)
    for (int j = 1; j < N - 1; j++)
      for (int k = 1; k < N - 1; k++) {
        double here = from[i][j][k];
        to[i][j][k] = here + 0.125 * (from[i + 1][j][k] - 2 * here + from[i - 1][j][k]) +
                      0.125 * (from[i][j + 1][k] - 2 * here + from[i][j - 1][k]) +
                      0.125 * (from[i][j][k + 1] - 2 * here + from[i][j][k - 1]);
      }
}

KERNEL void heat(int steps) {
  for (int t = 0; t < steps; t++) {
    step(b, a);
    step(a, b);
  }
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
      for (int k = 0; k < N; k++) a[i][j][k] = b[i][j][k] = (double)(i + j + (N - k)) * 10 / N;
  heat(STEPS);
  note_reals(a[0][0], (long)N * N * N);
  return report("heat-3d");
}
