/* Most pairs of a chain that folds onto itself: from the last element to the first, with a
 * condition in each round and a cut in the innermost loop. */
#include "once.h"

enum { N = BY_SIZE(1650, 520) };

static int table[N][N];
static char chain[N];

static int pairs(char a, char b) { return a + b == 3; }

KERNEL void fold(int n, int table[n][n], const char *chain) {
  for (int i = n - 1; i >= 0; i--)
    for (int j = i + 1; j < n; j++) {
      int best = table[i][j - 1];
      if (i + 1 < n && table[i + 1][j] > best) best = table[i + 1][j];
      if (i < j - 1) {
        int both = table[i + 1][j - 1] + pairs(chain[i], chain[j]);
        if (both > best) best = both;
      }
      for (int k = i + 1; k < j; k++) {
        int parts = table[i][k] + table[k + 1][j];
        if (parts > best) best = parts;
      }
      table[i][j] = best;
    }
}

int main(void) {
  for (int i = 0; i < N; i++) chain[i] = (char)(draw() % 4);
  fold(N, table, chain);
  note_bytes(table[0], sizeof table[0]);
  return report("folding");
}
