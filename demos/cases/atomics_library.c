// 16-byte atomics on a baseline CPU, and atomics of odd sizes: calls of libatomic.
// link: -latomic
// gate: E
#include <stdatomic.h>
#include <stdio.h>

struct odd { char text[11]; };
static _Atomic struct odd odd;
static _Atomic __int128 wide;

int main(void) {
  struct odd next = {"ten chars!"};
  atomic_store(&odd, next);
  printf("%s\n", atomic_load(&odd).text);
  wide = 5;
  __int128 wanted = 5;
  printf("%d\n", atomic_compare_exchange_strong(&wide, &wanted, (__int128)1 << 80));
  printf("%lld\n", (long long)(wide >> 78));
}
