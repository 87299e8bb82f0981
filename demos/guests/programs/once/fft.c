/* The discrete Fourier transform, forth and back, in place: bits reversed, then butterflies
 * whose distance doubles. */
#include "once.h"

enum { BITS = BY_SIZE(19, 13), N = 1 << BITS, ROUNDS = BY_SIZE(12, 60) };

static double re[N], im[N], cosines[N / 2], sines[N / 2];

KERNEL void transform(double sign) {
  for (int i = 1, j = 0; i < N; i++) {
    int bit = N >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j |= bit;
    if (i < j) {
      double kept = re[i];
      re[i] = re[j], re[j] = kept;
      kept = im[i];
      im[i] = im[j], im[j] = kept;
    }
  }
  for (int length = 2; length <= N; length <<= 1)
    for (int start = 0; start < N; start += length)
      for (int k = 0; k < length / 2; k++) {
        int low = start + k, high = low + length / 2, at = k * (N / length);
        double c = cosines[at], s = sign * sines[at];
        double x = re[high] * c - im[high] * s, y = re[high] * s + im[high] * c;
        re[high] = re[low] - x, im[high] = im[low] - y;
        re[low] += x, im[low] += y;
      }
}

int main(void) {
  for (int k = 0; k < N / 2; k++) {
    cosines[k] = cos(k * (2 * 3.14159265358979323846 / N));
    sines[k] = sin(k * (2 * 3.14159265358979323846 / N));
  }
  for (int i = 0; i < N; i++) {
    re[i] = i % 64 / 64.0;
    im[i] = i % 32 / 32.0;
  }
  for (int round = 0; round < ROUNDS; round++) {
    transform(-1);
    transform(1);
    for (int i = 0; i < N; i++) {
      re[i] /= N;
      im[i] /= N;
    }
  }
  note_reals(re, N);
  note_reals(im, N);
  return report("fft");
}
