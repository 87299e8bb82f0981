/* Compresses and restores generated data with bzip2, and compares.
 *   program            a few kinds of data
 *   program steady N   one kind, N times (`steady.h`) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bzlib.h"
#include "steady.h"

enum { SIZE = 600000 };

static char original[SIZE], packed[SIZE + SIZE / 50 + 1000], restored[SIZE];

static void fill(int kind) {
  uint32_t state = 12345;
  for (size_t i = 0; i < SIZE; i++) {
    state = state * 1664525 + 1013904223;
    switch (kind) {
      case 0: original[i] = (char)('a' + (state >> 24) % 5); break; /* few symbols */
      case 1: original[i] = (char)(state >> 24); break;             /* noise */
      default: original[i] = (char)(i / 5000); break;               /* long runs */
    }
  }
}

static void check(int code, const char *what) {
  if (code == BZ_OK) return;
  printf("%s failed: %d\n", what, code);
  exit(1);
}

/* The first `size` bytes there and back; a checksum of what was packed, which is `length` long. */
static unsigned pack(unsigned size, int block, int small, unsigned *length) {
  *length = sizeof packed;
  check(BZ2_bzBuffToBuffCompress(packed, length, original, size, block, 0, 0), "compress");
  unsigned back = sizeof restored;
  memset(restored, 0, sizeof restored);
  check(BZ2_bzBuffToBuffDecompress(restored, &back, packed, *length, small, 0), "decompress");
  if (back != size || memcmp(original, restored, size) != 0) {
    printf("the data came back different\n");
    exit(1);
  }
  unsigned sum = 0;
  for (unsigned i = 0; i < *length; i++) sum = sum * 31 + (unsigned char)packed[i];
  return sum;
}

static void round_trip(int kind, int block) {
  fill(kind);
  unsigned length, sum = pack(SIZE, block, kind == 0, &length);
  printf("kind %d, block %d: %u bytes, %08x\n", kind, block, length, sum);
}

static uint64_t iterate(void *size) {
  unsigned length;
  return pack(*(unsigned *)size, 9, 0, &length);
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "steady") == 0) {
    unsigned size = SIZE / 4;
    fill(0);
    return steady("bzip2", atol(argv[2]), iterate, &size);
  }
  for (int kind = 0; kind < 3; kind++) {
    round_trip(kind, 1);
    round_trip(kind, 9);
  }
  packed[40] ^= 1;
  unsigned back = sizeof restored;
  int code = BZ2_bzBuffToBuffDecompress(restored, &back, packed, 600, 0, 0);
  printf("damaged: %s\n", code == BZ_OK ? "accepted" : "refused");
  printf("version %s\n", BZ2_bzlibVersion());
  return 0;
}
