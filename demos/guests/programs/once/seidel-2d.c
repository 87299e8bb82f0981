/* Nine points averaged in place: each needs the one before, so that nothing is done at once. */
#include "once.h"

enum { N = BY_SIZE(1000, 150), STEPS = BY_SIZE(85, 100) };

static double a[N][N];

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) a[i][j] = draw_real() + 1;
  for (int t = 0; t < STEPS; t++)
    for (int i = 1; i < N - 1; i++)
      for (int j = 1; j < N - 1; j++)
        a[i][j] = (a[i - 1][j - 1] + a[i - 1][j] + a[i - 1][j + 1] + a[i][j - 1] + a[i][j] +
                   a[i][j + 1] + a[i + 1][j - 1] + a[i + 1][j] + a[i + 1][j + 1]) /
                  9.0;
  note_reals(a[0], (long)N * N);
  return report("seidel-2d");
}
