/* Numbers sorted in place: loops that jump out of each other. */
#include "once.h"

enum { N = BY_SIZE(4000000, 250000) };

KERNEL void sort(uint32_t *numbers, long count) {
  long start = count / 2, end = count;
  while (end > 1) {
    uint32_t number;
    if (start > 0) {
      number = numbers[--start];
    } else {
      number = numbers[--end];
      numbers[end] = numbers[0];
    }
    long hole = start;
    for (long child = 2 * hole + 1; child < end; child = 2 * hole + 1) {
      if (child + 1 < end && numbers[child + 1] > numbers[child]) child++;
      if (numbers[child] <= number) goto found;
      numbers[hole] = numbers[child];
      hole = child;
    }
  found:
    numbers[hole] = number;
  }
}

int main(void) {
  uint32_t *numbers = malloc(sizeof(uint32_t) * N);
  if (!numbers) return 1;
  for (long i = 0; i < N; i++) numbers[i] = draw() ^ draw() << 9;
  sort(numbers, N);
  for (long i = 1; i < N; i++)
    if (numbers[i - 1] > numbers[i]) return 2;
  for (long i = 0; i < N; i += 997) note(numbers[i]);
  free(numbers);
  return report("heap-sort");
}
