/* A rod that evens out, from one array to the other and back: short inner loops. */
#include "once.h"

enum { N = BY_SIZE(4000, 400), STEPS = BY_SIZE(450000, 30000) };

KERNEL void even_out(int steps, int n, double *restrict a, double *restrict b) {
  for (int t = 0; t < steps; t++) {
    for (int i = 1; i < n - 1; i++) b[i] = 0.33333 * (a[i - 1] + a[i] + a[i + 1]);
    for (int i = 1; i < n - 1; i++) a[i] = 0.33333 * (b[i - 1] + b[i] + b[i + 1]);
  }
}

int main(void) {
  static double a[N], b[N];
  for (int i = 0; i < N; i++) a[i] = b[i] = draw_real() + 1;
  even_out(STEPS, N, a, b);
  note_reals(a, N);
  return report("jacobi-1d");
}
