// Pointers that are promised to be the only ones, left at loops: as parameters, read from where
// they are kept, moved along, and to arrays of variable length.
#include <stdio.h>
#include <string.h>

#define APART __attribute__((noinline))

static long steps;

// Nothing else leads to either.
APART long even(int rounds, int n, double *restrict a, double *restrict b) {
  long passes = 0;
  for (int t = 0; t < rounds; t++) {
    for (int i = 1; i < n - 1; i++) b[i] = 0.25 * a[i - 1] + 0.5 * a[i] + 0.25 * a[i + 1];
    for (int i = 1; i < n - 1; i++) a[i] = 0.25 * b[i - 1] + 0.5 * b[i] + 0.25 * b[i + 1], passes++;
  }
  return passes;
}

// One of them moves along: a pointer made of it crosses.
APART long walk(int rounds, int n, int *restrict from, int *restrict to) {
  long sum = 0;
  for (int t = 0; t < rounds; t++) {
    int *at = to;
    for (int i = 0; i < n; i++, at++) {
      *at += from[i] + t;
      sum += to[i] + *at;
    }
  }
  return sum;
}

// What is kept elsewhere is made of it.
static int *kept;
APART void keep(int *p) { kept = p; }
APART long leaves(int rounds, int n, int *restrict p) {
  long sum = 0;
  keep(p);
  for (int t = 0; t < rounds; t++)
    for (int i = 0; i < n; i++) {
      p[i] += t;
      kept[n - 1 - i] ^= i;
      sum += p[n - 1 - i];
    }
  return sum;
}

// Given another value in the middle of the loop.
APART long turns(int rounds, int n, int *restrict p, int *other) {
  long sum = 0;
  for (int t = 0; t < rounds; t++) {
    for (int i = 0; i < n; i++) {
      p[i] += i;
      sum += p[i] * 3;
    }
    if (t == rounds / 2) p = other;
  }
  return sum;
}

// Arrays of variable length: one that stays, one in a loop, one that others know.
APART long columns(int n, int m, int data[n][m]) {
  long mean[m], spread[m];
  unsigned long result = 0;
  for (int j = 0; j < m; j++) {
    mean[j] = 0;
    for (int i = 0; i < n; i++) mean[j] += data[i][j];
    spread[j] = 0;
    for (int i = 0; i < n; i++) {
      int row[1 + i % 7];
      memset(row, 0, sizeof row);
      for (int k = 0; k < 1 + i % 7; k++) row[k] += data[i][j] * k;
      keep(row);
      data[i][j] -= (int)(mean[j] / n);
      spread[j] += (long)data[i][j] * data[i][j] + kept[i % 7];
    }
  }
  for (int j = 0; j < m; j++) result = result * 31 + mean[j] * 7 + spread[j];
  return (long)(result >> 1);
}

enum { N = 60, M = 40 };

int main(void) {
  static double a[N], b[N];
  static int from[N], to[N], data[N][M];
  for (int i = 0; i < N; i++) {
    a[i] = i * i % 17, b[i] = i % 5;
    from[i] = i * 7 % 13;
    for (int j = 0; j < M; j++) data[i][j] = (i * 31 + j * 17) % 101;
  }
  steps += even(40, N, a, b);
  double total = 0;
  for (int i = 0; i < N; i++) total += a[i] * (i + 1) + b[i];
  printf("even %ld %.9f\n", steps, total);
  printf("walk %ld\n", walk(45, N, from, to));
  printf("leaves %ld\n", leaves(30, N, to));
  printf("turns %ld\n", turns(33, N, to, from));
  printf("columns %ld\n", columns(N, M, data));
  unsigned long check = 0;
  for (int i = 0; i < N; i++) check = check * 3 + from[i] + to[i] + data[i][i % M];
  printf("check %lu\n", check);
  return 0;
}
