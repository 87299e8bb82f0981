// Four hot loops in local functions, which are too large to be inlined, and which a native loop calls 1,500 times. In
// C++ they have an anonymous namespace; of a library, `work` is what a program calls.
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
#define LOCAL
namespace {
#else
#define LOCAL static
#endif

enum { SIZE = 6000, SHIFTS = 24 };

LOCAL double filtered(const double *in, double *out, int size, double a, double b) {
  double sum = 0, last = 0, before = 0;
  for (int i = 2; i + 2 < size; i++) {
    double x = in[i] * a + (in[i - 1] + in[i + 1]) * b + (in[i - 2] + in[i + 2]) * (1 - a - 2 * b) / 2;
    double y = x * 0.75 + last * 0.2 + before * 0.05;
    before = last;
    last = y;
    for (int k = 2; k < 4; k++) {
      double z = y * k - in[i + k - 2];
      sum += z > 1 ? z - 1 : z < -1 ? z + 1 : z > 0.3 ? z * 0.1 : z < -0.3 ? z * 0.2 : z * z;
    }
    out[i] = y;
    sum += y > 0.5 ? y * y : y > 0.25 ? y * 0.5 : y > 0.125 ? y * 0.25 - a : y + b;
  }
  out[0] = out[size - 1] = sum / size;
  out[1] = (out[0] + out[2]) / 2;
  out[size - 2] = (out[size - 1] + out[size - 3]) / 2;
  return sum;
}

#define ROUND(factor, shift) word *= factor; word ^= word >> shift; seed += word << 3 ^ seed >> 5;

LOCAL unsigned long long mixed(unsigned *words, int size, unsigned seed) {
  unsigned long long hash = seed;
  for (int i = 0; i < size; i++) {
    unsigned word = words[i] ^ seed;
    word = (word << 13 | word >> 19) * 5 + 0xe6546b64;
    word ^= word >> 16;
    ROUND(0x85ebca6b, 13)
    ROUND(0xc2b2ae35, 16)
    ROUND(0x27d4eb2f, 15)
    ROUND(0x165667b1, 11)
    ROUND(0x9e3779b1, 17)
    ROUND(0x2545f491, 12)
    if (word & 1) seed += word; else seed ^= word >> 3;
    words[i] = word + (words[i] >> 7) + i;
    hash = (hash ^ word) * 0x100000001b3ull + (hash >> 29);
  }
  return hash;
}

LOCAL int counted(const unsigned char *text, int size, int *counts) {
  int words = 0, inside = 0, lines = 0, digits = 0, others = 0, depth = 0, quoted = 0;
  for (int i = 0; i < size; i++) {
    int c = text[i];
    counts[c]++;
    int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && !inside) words++;
    inside = letter;
    if (c == '\n') lines++;
    else if (c >= '0' && c <= '9') digits += c - '0';
    else if (!letter) others += c & 3;
    switch (c) {
    case '(': case '[': case '{': depth++; break;
    case ')': case ']': case '}': depth = depth > 0 ? depth - 1 : 0; lines ^= depth; break;
    case '"': quoted = !quoted; if (quoted) words++; break;
    case '\\': others += quoted ? 3 : 5; break;
    case ';': if (!depth) digits += 2; else digits--; break;
    case ',': others ^= depth << 2; break;
    case '<': case '>': case '=': others += 7; if (i && text[i - 1] == c) digits += 4; break;
    }
  }
  return words * 7 + lines * 5 + digits * 3 + others;
}

LOCAL long shifted(int *table, int size, int by) {
  long best = 0;
  for (int shift = 1; shift <= SHIFTS; shift++) {
    long sum = 0;
    for (int i = 0; i + shift < size / SHIFTS; i++) {
      int difference = table[i] - table[i + shift] + by;
      sum += difference < 0 ? -difference : difference;
      if (difference > 700) sum -= by; else if (difference < -700) sum += by * 3;
      else if ((difference & 15) == 7) sum ^= shift; else if ((difference & 31) == 9) sum += table[i] >> 3;
    }
    if (sum > best) best = sum;
  }
  for (int i = 0; i < size; i++) {
    int next = table[i] * 3 + by + i;
    if (next & 4) next ^= next >> 5; else if (next & 8) next += next >> 2; else next -= 11;
    if (next & 64) next = next * 5 + 1; else if (next & 128) next = next * 9 + by;
    table[i] = next & 1023;
  }
  return best;
}

#ifdef __cplusplus
} // namespace
extern "C"
#endif
int work(int calls) {
  double *in = (double *)malloc(SIZE * sizeof *in), *out = (double *)calloc(SIZE, sizeof *out);
  unsigned *hashed = (unsigned *)malloc(SIZE * sizeof *hashed);
  unsigned char *text = (unsigned char *)malloc(SIZE);
  int *table = (int *)malloc(SIZE * sizeof *table), counts[256] = {0};
  for (int i = 0; i < SIZE; i++) {
    in[i] = (i * 37 % 101) / 101.0;
    hashed[i] = i * 31;
    text[i] = i * 17 % 128;
    table[i] = i * 7 & 1023;
  }
  double sum = 0;
  unsigned long long hash = 0;
  long total = 0;
  for (int i = 0; i < calls; i++) {
    sum += filtered(in, out, SIZE - i % 3, 0.5 + i % 7 / 100.0, 0.2);
    sum -= filtered(out, in, SIZE / 8, 0.4, 0.25 + i % 5 / 100.0);
    hash ^= mixed(hashed, SIZE - i % 9, i);
    hash += mixed(hashed, SIZE / 7, i * 3);
    total += counted(text, SIZE - i % 4, counts);
    total -= counted(text, SIZE / 5, counts);
    total += shifted(table, SIZE - i % 11, i & 7);
    total -= shifted(table, SIZE / 3, 5);
  }
  printf("%.6f %llu %ld %d\n", sum, hash, total, counts[65]);
  return 0;
}

#ifndef LIBRARY
int main(int count, char **words) { return work(count > 1 ? atoi(words[1]) : 1500); }
#endif
