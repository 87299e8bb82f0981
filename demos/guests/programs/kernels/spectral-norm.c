/* The largest singular value of a matrix that is computed, never stored, by the
 * power method: small functions inside loops, divisions, sums in order. SIZE is the
 * number of rows. */
#include <math.h>
#include <stdlib.h>

#include "kernel.h"

enum { ROUNDS = 2 };

/* One over the number at (row, column) when the plane is counted by diagonals. */
static double element(int row, int column) {
  int diagonal = row + column;
  return 1.0 / (diagonal * (diagonal + 1) / 2 + row + 1);
}

void times(int size, const double *in, double *out) {
  for (int row = 0; row < size; row++) {
    double sum = 0.0;
    for (int column = 0; column < size; column++) sum += element(row, column) * in[column];
    out[row] = sum;
  }
}

void times_transposed(int size, const double *in, double *out) {
  for (int row = 0; row < size; row++) {
    double sum = 0.0;
    for (int column = 0; column < size; column++) sum += element(column, row) * in[column];
    out[row] = sum;
  }
}

static double dot(int size, const double *a, const double *b) {
  double sum = 0.0;
  for (int i = 0; i < size; i++) sum += a[i] * b[i];
  return sum;
}

static uint64_t work(long size) {
  int n = (int)size;
  double *memory = malloc(3 * (size_t)n * sizeof *memory);
  if (memory == NULL) return 0;
  double *u = memory, *v = u + n, *between = v + n;
  for (int i = 0; i < n; i++) u[i] = 1.0;
  for (int round = 0; round < ROUNDS; round++) {
    times(n, u, between), times_transposed(n, between, v);
    times(n, v, between), times_transposed(n, between, u);
  }
  double norm = sqrt(dot(n, u, v) / dot(n, v, v));
  free(memory);
  return kernel_bits(norm);
}

int main(int argc, char **argv) { return kernel("spectral-norm", argc, argv, work); }
