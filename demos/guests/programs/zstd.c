/* Compresses and restores generated data, and compares.
 *   program round-trip   several levels, one-shot and streaming, a dictionary-free
 *                        checksum of every frame
 *   program threads      the multi-threaded compressor
 *   program steady N     a few levels, N times (`steady.h`) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steady.h"
#include "zstd.h"

enum { SIZE = 1 << 20 };

static uint8_t original[SIZE], restored[SIZE];

/* Text-like data: words of a small vocabulary in a pseudo-random order. */
static void fill(void) {
  static const char *words[] = {"stub ", "slot ", "unit ", "space ", "version ", "tier ",
                                "lookup ", "session\n", "tracker ", "publish "};
  uint64_t state = 88172645463325252u;
  size_t at = 0;
  while (at < SIZE) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const char *word = words[state % 10];
    for (; *word && at < SIZE; word++) original[at++] = (uint8_t)*word;
    if (state % 31 == 0 && at < SIZE) original[at++] = (uint8_t)(state >> 32);
  }
}

static uint64_t checksum(const uint8_t *data, size_t length) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < length; i++) hash = (hash ^ data[i]) * 1099511628211u;
  return hash;
}

static size_t check(size_t result, const char *what) {
  if (ZSTD_isError(result)) {
    fprintf(stderr, "%s: %s\n", what, ZSTD_getErrorName(result));
    exit(1);
  }
  return result;
}

static void compare(const char *what, size_t length) {
  if (length == SIZE && memcmp(original, restored, SIZE) == 0) return;
  printf("%s: the data came back different\n", what);
  exit(1);
}

static void one_shot(int level, uint8_t *packed, size_t room) {
  size_t length = check(ZSTD_compress(packed, room, original, SIZE, level), "compress");
  memset(restored, 0, SIZE);
  compare("one shot", check(ZSTD_decompress(restored, SIZE, packed, length), "decompress"));
  printf("level %d: %zu bytes, %016llx\n", level, length,
         (unsigned long long)checksum(packed, length));
}

static void streaming(uint8_t *packed, size_t room, int workers) {
  ZSTD_CCtx *compressor = ZSTD_createCCtx();
  check(ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, 5), "level");
  check(ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1), "checksum");
  check(ZSTD_CCtx_setParameter(compressor, ZSTD_c_nbWorkers, workers), "workers");
  ZSTD_outBuffer out = {packed, room, 0};
  for (size_t at = 0; at < SIZE; at += 100000) {
    size_t piece = SIZE - at < 100000 ? SIZE - at : 100000;
    ZSTD_inBuffer in = {original + at, piece, 0};
    ZSTD_EndDirective end = at + piece == SIZE ? ZSTD_e_end : ZSTD_e_continue;
    size_t left;
    do {
      left = check(ZSTD_compressStream2(compressor, &out, &in, end), "compress stream");
    } while (end == ZSTD_e_end ? left != 0 : in.pos < in.size);
  }
  ZSTD_freeCCtx(compressor);

  memset(restored, 0, SIZE);
  ZSTD_DCtx *decompressor = ZSTD_createDCtx();
  ZSTD_outBuffer back = {restored, SIZE, 0};
  for (size_t at = 0; at < out.pos; at += 4096) {
    size_t piece = out.pos - at < 4096 ? out.pos - at : 4096;
    ZSTD_inBuffer in = {packed + at, piece, 0};
    while (in.pos < in.size)
      check(ZSTD_decompressStream(decompressor, &back, &in), "decompress stream");
  }
  ZSTD_freeDCtx(decompressor);
  compare("stream", back.pos);
  printf("stream, %d workers: ok\n", workers);
}

/* One iteration: packed at three levels and unpacked again. */
static uint64_t iterate(void *context) {
  uint8_t *packed = context;
  static const int levels[] = {1, 3, 6};
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    size_t room = ZSTD_compressBound(SIZE);
    size_t length = check(ZSTD_compress(packed, room, original, SIZE, levels[i]), "compress");
    compare("steady", check(ZSTD_decompress(restored, SIZE, packed, length), "decompress"));
    sum = sum * 31 + length + packed[length / 2];
  }
  return sum;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: program round-trip | threads | steady N\n");
    return 2;
  }
  fill();
  size_t room = ZSTD_compressBound(SIZE) + 4096;
  uint8_t *packed = malloc(room);
  if (strcmp(argv[1], "steady") == 0 && argc == 3) {
    int status = steady("zstd", atol(argv[2]), iterate, packed);
    free(packed);
    return status;
  }
  if (strcmp(argv[1], "threads") == 0) {
    streaming(packed, room, 3);
  } else {
    static const int levels[] = {-5, 1, 3, 6, 9, 13, 17, 19};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
      one_shot(levels[i], packed, room);
    streaming(packed, room, 0);
  }
  packed[10] ^= 0x55;
  size_t result = ZSTD_decompress(restored, SIZE, packed, 2000);
  printf("damaged frame: %s\n", ZSTD_isError(result) ? "refused" : "accepted");
  free(packed);
  return 0;
}
