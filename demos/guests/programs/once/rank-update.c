/* The lower half of C := C + A A', dot products of rows: one real is carried by the
 * innermost loop. */
#include "once.h"

enum { N = BY_SIZE(1200, 330), M = BY_SIZE(1000, 300) };

static float a[N][M];
static double c[N][N];

KERNEL void rank_update(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j <= i; j++) {
      double sum = 0;
      for (int k = 0; k < M; k++) sum += (double)a[i][k] * a[j][k];
      c[i][j] += sum;
    }
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int k = 0; k < M; k++) a[i][k] = (float)draw_real();
  rank_update();
  note_reals(c[0], (long)N * N);
  return report("rank-update");
}
