/* A register machine whose operations jump to each other through a table of labels, in
 * `main`: the loop has no header of its own in the source. */
#include "once.h"

enum { LIMIT = BY_SIZE(60000000, 2000000) };
enum code { MULTIPLY, ADD, SHIFT, XOR, EVEN, LESS, END };

static const struct instruction {
  unsigned char code, to, one, other;
} program[] = {
    {MULTIPLY, 1, 1, 5}, {ADD, 1, 1, 6}, {SHIFT, 2, 1, 7}, {XOR, 3, 3, 2},
    {EVEN, 1, 3, 0},     {ADD, 4, 4, 3}, {ADD, 0, 0, 8},   {LESS, 8, 0, 9},
    {END, 0, 0, 0},
};

int main(void) {
  static const void *const labels[] = {&&multiply, &&add, &&shift, &&xor, &&even, &&less, &&end};
  uint64_t r[10] = {0, 7, 0, 0, 0, 6364136223846793005u, 1442695040888963407u, 33, 1, LIMIT};
  const struct instruction *at = program;
#define NEXT goto *labels[at->code]
  NEXT;
multiply: r[at->to] = r[at->one] * r[at->other]; at++; NEXT;
add: r[at->to] = r[at->one] + r[at->other]; at++; NEXT;
shift: r[at->to] = r[at->one] >> r[at->other]; at++; NEXT;
xor: r[at->to] = r[at->one] ^ r[at->other]; at++; NEXT;
even: at += r[at->one] & 1 ? at->to : 1; at++; NEXT;
less: at = r[at->one] < r[at->other] ? at + 1 - at->to : at + 1; NEXT;
end:
  note(r[3]);
  note(r[4]);
  return report("threaded-code");
}
