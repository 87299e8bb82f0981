/* A program that sees whether it is compiled by what was counted in it: a function that is too large to
   be inlined, unless its calls are known to be hot, looks whether it was. Ends with 0 once it was, with
   1 if it was not for a while.

       guided SECONDS */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Where the caller returns to: what it inlined returns there, too. */
static void *volatile callers;
static volatile int is_inlined;

#define STEP(n)                                                                                    \
  x = x * (n) ^ (x >> ((n) % 7 + 1));                                                              \
  y += x & (n) ? y ^ x : x - y;
#define STEPS(n)                                                                                   \
  STEP(n + 3) STEP(n + 5) STEP(n + 9) STEP(n + 11) STEP(n + 17) STEP(n + 21) STEP(n + 30) STEP(n + 41)

static uint32_t large(uint32_t x) {
  uint32_t y = x + 1;
  if (__builtin_return_address(0) == callers) is_inlined = 1;
  STEPS(1)
  STEPS(100)
  return x + y;
}

/* Two calls: that of a function with one caller costs nothing to inline. */
static uint32_t caller(int count, uint32_t x) {
  callers = __builtin_return_address(0);
  for (int i = 0; i < count; i++) x += large(x);
  if (x == 12345) x += large(x + 1);
  return x;
}
static uint32_t (*volatile call)(int, uint32_t) = caller;

int main(int count, char **arguments) {
  time_t end = time(NULL) + (count > 1 ? atoi(arguments[1]) : 0);
  uint32_t sum = 0;
  do sum += call(1000, sum);
  while (!is_inlined && time(NULL) < end);
  return !is_inlined;
}
