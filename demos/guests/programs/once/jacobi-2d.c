/* A plate that evens out until it changes little: pointers to the arrays change places, and
 * a condition on a real ends the outer loop. */
#include "once.h"

enum { N = BY_SIZE(900, 130), MOST = BY_SIZE(900, 1000) };

static float cells[2][N][N];

KERNEL int even_out(float limit) {
  float(*from)[N] = cells[0], (*to)[N] = cells[1];
  int steps = 0;
  float change;
  do {
    change = 0;
    for (int i = 1; i < N - 1; i++)
      for (int j = 1; j < N - 1; j++) {
        to[i][j] = 0.25f * (from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]);
        float difference = fabsf(to[i][j] - from[i][j]);
        if (difference > change) change = difference;
      }
    float(*kept)[N] = from;
    from = to;
    to = kept;
    steps++;
  } while (change > limit && steps < MOST);
  return steps;
}

int main(void) {
  for (int which = 0; which < 2; which++)
    for (int i = 0; i < N; i++) cells[which][0][i] = cells[which][i][0] = (float)(i % 8);
  note((uint64_t)even_out(0));
  for (int i = 0; i < N; i++) note_real(lrintf(cells[0][i][N / 2] * 1e4f));
  return report("jacobi-2d");
}
