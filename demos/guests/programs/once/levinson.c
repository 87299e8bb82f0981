/* A Toeplitz system by its recurrences: a vector that grows by one each round, reversed into
 * another, and a few reals that are carried from round to round. */
#include "once.h"

enum { N = BY_SIZE(25000, 5000) };

static double r[N + 1], y[N];

KERNEL double recurrences(int n) {
  static double reversed[N];
  double alpha = -r[1] / r[0], beta = r[0];
  y[0] = alpha;
  for (int k = 1; k < n; k++) {
    beta *= 1 - alpha * alpha;
    double sum = r[k + 1];
    for (int i = 0; i < k; i++) sum += r[k - i] * y[i];
    alpha = -sum / beta;
    for (int i = 0; i < k; i++) reversed[i] = y[i] + alpha * y[k - 1 - i];
    for (int i = 0; i < k; i++) y[i] = reversed[i];
    y[k] = alpha;
  }
  return beta;
}

int main(void) {
  for (int k = 0; k <= N; k++) r[k] = 0.5 * cos(0.3 * k) / (1 + 0.01 * k) + (k == 0) * 0.5;
  note_real(recurrences(N));
  note_reals(y, N);
  return report("levinson");
}
