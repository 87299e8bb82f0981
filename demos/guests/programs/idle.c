/* Work that is all the C library's: nothing of the program's own is hot.
 *   program N LENGTH   N iterations (`steady.h`) over so many bytes */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steady.h"

static char *from, *to;
static size_t length;

static uint64_t iterate(void *unused) {
  (void)unused;
  uint64_t sum = 0;
  for (int round = 0; round < 40; round++) {
    memcpy(to, from, length);
    to[length / 2] ^= (char)round;
    sum = sum * 31 + (uint64_t)(memcmp(from, to, length) != 0);
    sum = sum * 31 + strlen(to);
  }
  return sum;
}

int main(int argc, char **argv) {
  length = argc > 2 ? (size_t)atol(argv[2]) : 1 << 20;
  from = malloc(length + 1);
  to = malloc(length + 1);
  if (argc < 2 || from == NULL || to == NULL) {
    fprintf(stderr, "usage: program N LENGTH\n");
    return 2;
  }
  memset(from, 'x', length);
  from[length] = to[length] = 0;
  return steady("idle", atol(argv[1]), iterate, NULL);
}
