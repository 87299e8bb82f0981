// Tail calls that must happen: a million hops between functions fit no stack.
#include <stdio.h>

#define TAIL __attribute__((musttail)) return

static long even(long n, long count);
static long odd(long n, long count);
typedef long step(long, long);
static step *volatile const table[] = {even, odd};

__attribute__((noinline)) static long even(long n, long count) {
  if (n == 0) return count;
  TAIL odd(n - 1, count + 1);
}
__attribute__((noinline)) static long odd(long n, long count) {
  if (n == 0) return -count;
  TAIL table[(n - 1) & 1 ? 1 : 0](n - 1, count + 2);
}

int main(void) { printf("%ld %ld\n", even(3000000, 0), odd(3000001, 0)); }
