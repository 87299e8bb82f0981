/* Cells that live and die on a torus, a byte each: borders by remainders, conditions as
 * values. */
#include "once.h"

enum { N = BY_SIZE(600, 120), STEPS = BY_SIZE(330, 200) };

static unsigned char cells[2][N][N];

KERNEL long live(int steps) {
  long alive = 0;
  for (int t = 0; t < steps; t++) {
    unsigned char(*from)[N] = cells[t & 1], (*to)[N] = cells[~t & 1];
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        int around = 0;
        for (int down = -1; down <= 1; down++)
          for (int right = -1; right <= 1; right++)
            if (down || right) around += from[(i + down + N) % N][(j + right + N) % N];
        to[i][j] = around == 3 || (around == 2 && from[i][j]);
        alive += to[i][j];
      }
  }
  return alive;
}

int main(void) {
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) cells[0][i][j] = draw() % 3 == 0;
  note((uint64_t)live(STEPS));
  note_bytes(cells[STEPS & 1], sizeof cells[0]);
  return report("life");
}
