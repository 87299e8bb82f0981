/* A program whose compiled code is three times as slow as its native code, on purpose: the function
   that is hot looks where it lies. Ends with 0 once it runs compiled code no more, with 1 if it
   still does after a while.

       slower SECONDS */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **arguments);

/* Whether its caller lies where the program does. */
__attribute__((noinline)) static int is_native(void) {
  uintptr_t at = (uintptr_t)__builtin_return_address(0), here = (uintptr_t)main;
  return at - here + (1 << 20) < (2 << 20);
}

/* About half a millisecond natively. */
__attribute__((noinline)) int work(volatile uint32_t *state) {
  int native = is_native();
  uint32_t rounds = native ? 200000 : 600000;
  for (uint32_t round = 0; round < rounds; round++) *state = *state * 1664525u + 1013904223u;
  return native;
}

static int (*volatile call)(volatile uint32_t *) = work;

int main(int count, char **arguments) {
  /* More calls than two slices of a comparison have. */
  enum { ENOUGH = 3000 };
  uint32_t state = 1;
  clock_t end = clock() + (count > 1 ? atol(arguments[1]) : 60) * CLOCKS_PER_SEC;
  int compiled = 0, natives = 0;
  while (clock() < end) {
    if (call(&state)) {
      natives++;
    } else {
      compiled = 1;
      natives = 0;
    }
    if (compiled && natives == ENOUGH) {
      puts("native again");
      return 0;
    }
  }
  puts(compiled ? "still compiled" : "never compiled");
  return 1;
}
