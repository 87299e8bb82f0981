/* Points of the plane that escape or do not: the innermost loop ends by a condition on what
 * it carries. */
#include "once.h"

enum { N = BY_SIZE(2000, 260), MOST = 300 };

/* Sums are rounded: points at the border escape a round sooner or later if operations are
 * fused. */
int main(void) {
  uint64_t inside = 0, rounds = 0;
  for (int row = 0; row < N; row++)
    for (int column = 0; column < N; column++) {
      double x = 3.0 * column / N - 2.0, y = 2.5 * row / N - 1.25;
      double a = 0, b = 0;
      int count = 0;
      while (count < MOST && a * a + b * b <= 4.0) {
        double next = a * a - b * b + x;
        b = 2 * a * b + y;
        a = next;
        count++;
      }
      if (count == MOST) inside++;
      rounds += (uint64_t)count;
    }
  note(BY_SIZE(rounds / 1000000, rounds));
  note(BY_SIZE(inside / 1000, inside));
  return report("mandelbrot");
}
