/* Counts of bytes and of pairs, then of a sequence by its own past: stores that depend on
 * loads, counters in an array on the stack. */
#include "once.h"

enum { SIZE = 1 << 20, ROUNDS = BY_SIZE(750, 14) };

static unsigned char text[SIZE];
static uint32_t pairs[1 << 16];

KERNEL uint64_t count(int rounds) {
  uint32_t singles[256] = {0};
  uint64_t weight = 0;
  for (int round = 0; round < rounds; round++) {
    unsigned last = (unsigned)round & 255;
    for (int at = 0; at < SIZE; at++) {
      unsigned here = text[at] ^ (unsigned)(round & 3);
      singles[here]++;
      pairs[last << 8 | here]++;
      last = here;
    }
    weight += pairs[(unsigned)round * 40503u & 0xffff];
  }
  for (int at = 0; at < 256; at++) weight = weight * 31 + singles[at];
  return weight;
}

int main(void) {
  for (int at = 0; at < SIZE; at++) text[at] = (unsigned char)(draw() >> (draw() % 16));
  note(count(ROUNDS));
  note_bytes(pairs, sizeof pairs);
  return report("histogram");
}
