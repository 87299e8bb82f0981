/* The best global alignment of two texts, two rows at a time that change places; and their
 * longest common subsequence in one row. Maxima by conditions, bytes compared. */
#include "once.h"

enum { N = BY_SIZE(14000, 1800), M = BY_SIZE(15000, 1700) };

static unsigned char one[N], other[M];

static int most(int a, int b) { return a > b ? a : b; }

KERNEL int align(int match, int mismatch, int gap) {
  static int rows[2][M + 1];
  int *above = rows[0], *here = rows[1];
  for (int j = 0; j <= M; j++) above[j] = j * gap;
  for (int i = 1; i <= N; i++) {
    here[0] = i * gap;
    for (int j = 1; j <= M; j++) {
      int both = above[j - 1] + (one[i - 1] == other[j - 1] ? match : mismatch);
      here[j] = most(both, most(above[j], here[j - 1]) + gap);
    }
    int *kept = above;
    above = here;
    here = kept;
  }
  return above[M];
}

KERNEL int common(void) {
  static short row[M + 1];
  for (int i = 0; i < N; i++) {
    short diagonal = 0;
    for (int j = 0; j < M; j++) {
      short above = row[j + 1];
      if (one[i] == other[j])
        row[j + 1] = (short)(diagonal + 1);
      else if (row[j] > above)
        row[j + 1] = row[j];
      diagonal = above;
    }
  }
  return row[M];
}

int main(void) {
  for (int i = 0; i < N; i++) one[i] = "acgt"[draw() % 4];
  for (int j = 0; j < M; j++) other[j] = j % 9 && j < N ? one[j] : (unsigned char)"acgt"[draw() % 4];
  note((uint64_t)align(3, -1, -2));
  note((uint64_t)common());
  return report("alignment");
}
