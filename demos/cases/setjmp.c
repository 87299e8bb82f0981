// setjmp and longjmp: over frames that wait nowhere, over a library frame, twice into
// the same frame, with values kept in volatile locals.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf outer, inner;
static int calls;

__attribute__((noinline)) static void leave(jmp_buf where, int value) { longjmp(where, value); }
__attribute__((noinline)) static void deep(int n, jmp_buf where) {
  volatile char frame[100];
  frame[n % 100] = (char)n;
  if (n == 0) leave(where, 5);
  deep(n - 1, where);
  frame[0]++;
}

static int compare(const void *a, const void *b) {
  if (++calls == 7) longjmp(outer, 9);
  return *(const int *)a - *(const int *)b;
}

int main(void) {
  volatile int rounds = 0;
  int value = setjmp(outer);
  if (value == 0) deep(200, outer);
  printf("%d\n", value);
  while (setjmp(inner) < 1 || rounds < 1000) {
    rounds++;
    leave(inner, rounds % 2 ? 1 : 2);
  }
  printf("%d\n", rounds);
  int numbers[50];
  for (int i = 0; i < 50; i++) numbers[i] = 50 - i;
  if (setjmp(outer) == 9)
    printf("out of qsort after %d calls\n", calls);
  else
    qsort(numbers, 50, sizeof *numbers, compare);
}
