// Kernels of which it is not clear how they are best compiled: what LLVM's heuristics do to one of
// them, inlining, vectorizing, unrolling, packing, tables, does not pay, or something they do not do
// would. Each takes how much to do, some tens of microseconds' work, and returns a checksum.
#include <stdint.h>

typedef int64_t i64;

static double rows[64][64], row[4096];
static int32_t cells[4096], other[4096];
static uint8_t bytes[4096];

i64 prepare(void) {
  for (int i = 0; i < 4096; i++) {
    row[i] = (i * 7 % 97) * 0.25;
    rows[i / 64][i % 64] = (i * 13 % 89) * 0.5;
    cells[i] = i * 1664525 + 1013904223;
    other[i] = i * 22695477 + 1;
    bytes[i] = (uint8_t)(i * 31 + (i >> 5));
  }
  return cells[4095];
}

static i64 escape(double re, double im) {
  double x = 0, y = 0;
  i64 n = 0;
  for (; n < 200 && x * x + y * y <= 4; n++) {
    double next = x * x - y * y + re;
    y = 2 * x * y + im;
    x = next;
  }
  return n;
}

i64 mandelbrot(i64 size) {
  i64 total = 0;
  for (i64 i = 0; i < size * size; i++)
    total += escape(3.0 * (i % size) / size - 2.25, 2.5 * (i / size) / size - 1.25);
  return total;
}

// Loops of a few passes each, of a number the compiler does not know.
i64 short_loops(i64 count) {
  int32_t sum = 0;
  for (i64 i = 0; i < count; i++) {
    int length = 1 + (bytes[i & 4095] & 7);
    const int32_t *from = cells + (i * 5 & 2047);
    for (int j = 0; j < length; j++) sum += from[j] ^ j;
  }
  return sum;
}

i64 dot(i64 times) {
  i64 sum = 0;
  for (i64 t = 0; t < times; t++)
    for (int i = 0; i < 4096; i++) sum += (i64)cells[i] * other[(i + t) & 4095];
  return sum;
}

i64 horner(i64 times) {
  double sum = 0;
  for (i64 t = 0; t < times; t++)
    for (int i = 0; i < 4096; i++) {
      double x = row[i] * 0.01;
      sum += ((((x * 0.5 + 1) * x - 2) * x + 3) * x - 4) * x + 5;
    }
  return (i64)sum;
}

i64 matmul(i64 times) {
  static double out[64][64];
  for (i64 t = 0; t < times; t++)
    for (int i = 0; i < 64; i++)
      for (int j = 0; j < 64; j++) {
        double sum = 0;
        for (int k = 0; k < 64; k++) sum += rows[i][k] * rows[k][j];
        out[i][j] = sum;
      }
  return (i64)out[13][17];
}

// A machine of eight instructions.
i64 interpret(i64 steps) {
  i64 a = 1, b = 2;
  for (i64 pc = 0; pc < steps; pc++)
    switch (bytes[(pc * 17 + (a & 3)) & 4095] & 7) {
    case 0: a += b; break;
    case 1: b ^= a; break;
    case 2: a = a * 3 + 1; break;
    case 3: b = b >> 1 | b << 63; break;
    case 4: a -= b & 255; break;
    case 5: b += pc; break;
    case 6: a ^= b << 7; break;
    default: b = a - b; break;
    }
  return a ^ b;
}

// A chain of dependent steps that looks as if it could be packed.
i64 pairs(i64 times) {
  double a = 1, b = 2, c = 3, d = 4;
  for (i64 i = 0; i < times; i++) {
    double e = a * 0.5 + b, f = c * 0.5 + d;
    double g = b * 0.25 + f, h = d * 0.25 + e;
    a = e * 0.5, b = g * 0.5, c = f * 0.5, d = h * 0.5;
  }
  return (i64)((a + b + c + d) * 1000);
}

i64 find(i64 times) {
  i64 sum = 0;
  for (i64 t = 0; t < times; t++) {
    uint8_t wanted = (uint8_t)(t * 37);
    int i = (int)(t * 11 & 1023);
    while (i < 4095 && bytes[i] != wanted) i++;
    sum += i;
  }
  return sum;
}

static int32_t mix(int32_t a, int32_t b) {
  a ^= b * 0x45d9f3b;
  a = (int32_t)((uint32_t)a << 13 | (uint32_t)a >> 19);
  return a * 5 + b;
}

i64 hash(i64 times) {
  int32_t sum = 1;
  for (i64 t = 0; t < times; t++)
    for (int i = 0; i < 1024; i++) sum = mix(sum, cells[i]);
  return sum;
}

i64 stencil(i64 times) {
  for (i64 t = 0; t < times; t++) {
    for (int i = 64; i < 4032; i++)
      other[i] = (cells[i - 64] + cells[i - 1] + 4 * cells[i] + cells[i + 1] + cells[i + 64]) >> 3;
    for (int i = 64; i < 4032; i++) cells[i] = other[i] + i;
  }
  return cells[2048];
}

// Digits in a base that nobody knows when it is compiled.
i64 digits(i64 count, i64 base) {
  uint64_t sum = 0;
  for (uint64_t i = 1; i <= (uint64_t)count * 16; i++)
    for (uint64_t left = i * 2654435761u; left; left /= (uint64_t)base) sum += left % (uint64_t)base;
  return (i64)sum;
}
