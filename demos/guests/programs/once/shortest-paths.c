/* Shortest paths between all pairs, of integers. */
#include "once.h"

enum { N = BY_SIZE(1200, 260) };

KERNEL void paths(int n, int distance[n][n]) {
  for (int k = 0; k < n; k++)
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        if (distance[i][k] + distance[k][j] < distance[i][j])
          distance[i][j] = distance[i][k] + distance[k][j];
}

int main(void) {
  static int distance[N][N];
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      distance[i][j] = i == j ? 0 : (i * j) % 7 + 1;
      if ((i + j) % 13 == 0 || (i + j) % 7 == 0 || (i + j) % 11 == 0) distance[i][j] = 999;
    }
  paths(N, distance);
  note_bytes(distance[N / 2], sizeof distance[0]);
  note_bytes(distance[N - 1], sizeof distance[0]);
  return report("shortest-paths");
}
