/* In which order a chain of matrices is multiplied with least work: intervals by length,
 * the best cut of each in local variables. */
#include "once.h"

enum { N = BY_SIZE(1450, 420) };

static uint64_t cost[N][N];
static short cut[N][N];
static int size[N + 1];

KERNEL void order(void) {
  for (int length = 2; length <= N; length++)
    for (int from = 0; from + length <= N; from++) {
      int to = from + length - 1, where = from;
      uint64_t least = UINT64_MAX;
      for (int at = from; at < to; at++) {
        uint64_t work = cost[from][at] + cost[at + 1][to] +
                        (uint64_t)size[from] * (uint64_t)size[at + 1] * (uint64_t)size[to + 1];
        if (work < least) {
          least = work;
          where = at;
        }
      }
      cost[from][to] = least;
      cut[from][to] = (short)where;
    }
}

int main(void) {
  for (int i = 0; i <= N; i++) size[i] = (int)(draw() % 90) + 10;
  order();
  for (int i = 0; i < N; i++) {
    note(cost[i][N - 1]);
    note((uint64_t)cut[0][i]);
  }
  return report("matrix-chain");
}
