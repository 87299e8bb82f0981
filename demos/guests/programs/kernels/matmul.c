/* The product of two square matrices, row by row, in blocks that fit the cache:
 * what a vectoriser is for. SIZE is the number of rows. */
#include <stdlib.h>

#include "kernel.h"

enum { BLOCK = 64 };

static void fill(long n, double *matrix, unsigned seed) {
  for (long i = 0; i < n * n; i++) {
    seed = seed * 1664525u + 1013904223u;
    matrix[i] = (double)(seed >> 20) / 4096.0 - 0.5;
  }
}

static void add_scaled(long count, double *restrict to, const double *restrict from, double by) {
  for (long i = 0; i < count; i++) to[i] += by * from[i];
}

void multiply(long n, const double *a, const double *b, double *c) {
  for (long i = 0; i < n * n; i++) c[i] = 0.0;
  for (long low = 0; low < n; low += BLOCK) {
    long high = low + BLOCK < n ? low + BLOCK : n;
    for (long row = 0; row < n; row++)
      for (long k = low; k < high; k++)
        add_scaled(n, c + row * n, b + k * n, a[row * n + k]);
  }
}

static uint64_t work(long n) {
  /* Of its own choice the heap has it cross a line with each wide access, or not. */
  double *memory = aligned_alloc(64, (3 * (size_t)(n * n) * sizeof *memory + 63) & ~(size_t)63);
  if (memory == NULL) return 0;
  double *a = memory, *b = a + n * n, *c = b + n * n;
  fill(n, a, 1), fill(n, b, 2);
  multiply(n, a, b, c);
  double trace = 0.0;
  for (long i = 0; i < n; i++) trace += c[i * n + (n - 1 - i)];
  uint64_t sum = kernel_bits(trace) ^ kernel_bits(c[n * n / 2]);
  free(memory);
  return sum;
}

int main(int argc, char **argv) { return kernel("matmul", argc, argv, work); }
