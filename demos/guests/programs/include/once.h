/* Programs whose time goes into loops that are entered once: one call of one function, or
 * loops of `main` itself. Each prints one checksum.
 *
 * With SMALL defined they take some hundredths of a second, and what they computed is
 * compared bit for bit. Otherwise they take about a second, and reals are rounded to
 * millionths at places spread over the results: a compiler that fuses multiplications and
 * additions prints the same. */
#ifndef ONCE_H
#define ONCE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SMALL
#define BY_SIZE(large, small) (small)
#else
#define BY_SIZE(large, small) (large)
#endif

/* A function that is called once, or a few times, and stays one: a caller that is compiled well
 * from the start, because its own loops are nested, does not take it in. */
#define KERNEL __attribute__((noinline))

/* Reals that are looked at, of one array. */
enum { ONCE_PLACES = 1000 };

static uint64_t once_sum = 0xcbf29ce484222325u;
static uint32_t once_state = 12345;

__attribute__((unused)) static void note(uint64_t value) {
  once_sum = (once_sum ^ value) * 0x9e3779b97f4a7c15u;
  once_sum ^= once_sum >> 29;
}

__attribute__((unused)) static void note_real(double value) {
#ifdef SMALL
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  note(bits);
#else
  note((uint64_t)llrint(value * 1e6));
#endif
}

__attribute__((unused)) static void note_reals(const double *values, long count) {
  long step = BY_SIZE(count / ONCE_PLACES + 1, 1);
  for (long at = 0; at < count; at += step) note_real(values[at]);
}

__attribute__((unused)) static void note_bytes(const void *bytes, size_t count) {
  const unsigned char *from = bytes;
  for (size_t at = 0; at < count; at++) note(from[at]);
}

/* The same numbers in every run. */
__attribute__((unused)) static uint32_t draw(void) {
  once_state = once_state * 1664525u + 1013904223u;
  return once_state >> 8;
}

/* From 0 to 1. */
__attribute__((unused)) static double draw_real(void) { return draw() / 16777216.0; }

static int report(const char *name) {
  printf("%s %016llx\n", name, (unsigned long long)once_sum);
  return 0;
}

#endif
