/* How long points of the plane take to escape: loops of unpredictable length over
 * a few doubles in registers. SIZE is the side of the picture in points. */
#include "kernel.h"

enum { LIMIT = 120 };

static int escapes_after(double re, double im) {
  double x = 0.0, y = 0.0;
  int count = 0;
  while (count < LIMIT) {
    double xx = x * x, yy = y * y;
    if (xx + yy > 4.0) break;
    y = 2.0 * x * y + im;
    x = xx - yy + re;
    count++;
  }
  return count;
}

uint64_t row(long size, long line) {
  double im = -1.25 + 2.5 * (double)line / (double)size;
  uint64_t sum = 0;
  for (long column = 0; column < size; column++) {
    double re = -2.0 + 2.75 * (double)column / (double)size;
    sum = sum * 31 + (uint64_t)escapes_after(re, im);
  }
  return sum;
}

static uint64_t work(long size) {
  uint64_t sum = 0;
  for (long line = 0; line < size; line++) sum = sum * 1099511628211u ^ row(size, line);
  return sum;
}

int main(int argc, char **argv) { return kernel("mandelbrot", argc, argv, work); }
