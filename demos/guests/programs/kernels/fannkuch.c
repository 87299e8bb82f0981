/* All orders of the first SIZE numbers, and how many times a prefix as long as the
 * first number can be reversed until that number is 0: bytes, branches, short
 * copies. The orders come from Heap's method, one exchange each. */
#include "kernel.h"

enum { MOST = 12 };

static void exchange(unsigned char *a, unsigned char *b) {
  unsigned char kept = *a;
  *a = *b;
  *b = kept;
}

static int flips(const unsigned char *order, int length) {
  unsigned char cards[MOST];
  for (int i = 0; i < length; i++) cards[i] = order[i];
  int count = 0;
  for (int first = cards[0]; first != 0; first = cards[0]) {
    for (int low = 0, high = first; low < high; low++, high--)
      exchange(&cards[low], &cards[high]);
    count++;
  }
  return count;
}

struct result {
  int most;
  int64_t alternating;
};

static void look(struct result *result, const unsigned char *order, int length, int odd) {
  int count = flips(order, length);
  if (count > result->most) result->most = count;
  result->alternating += odd ? -count * 3 : count * 2;
}

struct result all_orders(int length) {
  unsigned char order[MOST], turn[MOST] = {0};
  for (int i = 0; i < length; i++) order[i] = (unsigned char)i;
  struct result result = {0, 0};
  int odd = 0;
  look(&result, order, length, odd);
  for (int level = 1; level < length;) {
    if (turn[level] < level) {
      exchange(&order[level % 2 == 0 ? 0 : turn[level]], &order[level]);
      odd = !odd;
      look(&result, order, length, odd);
      turn[level]++;
      level = 1;
    } else {
      turn[level] = 0;
      level++;
    }
  }
  return result;
}

static uint64_t work(long size) {
  struct result result = all_orders((int)(size < MOST ? size : MOST));
  return (uint64_t)result.alternating * 64 + (uint64_t)result.most;
}

int main(int argc, char **argv) { return kernel("fannkuch", argc, argv, work); }
