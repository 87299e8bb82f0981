// Atomics of 1 to 16 bytes.
// flags: -mcx16
#include <stdatomic.h>
#include <stdio.h>

struct pair { _Alignas(16) long a; long b; };
static _Atomic struct pair shared;
static _Atomic __int128 wide;
static _Atomic char byte;
static _Atomic long word;
static _Atomic double real;

int main(void) {
  struct pair old = atomic_load(&shared), next = {1, 2};
  printf("%d\n", atomic_compare_exchange_strong(&shared, &old, next));
  next = (struct pair){3, 4};
  old = atomic_exchange(&shared, next);
  printf("%ld %ld %ld\n", old.a, old.b, atomic_load(&shared).b);
  wide = (__int128)1 << 100;
  atomic_fetch_add(&wide, 5);
  printf("%llx %llx\n", (unsigned long long)(wide >> 64), (unsigned long long)wide);
  byte = 250;
  printf("%d\n", atomic_fetch_add(&byte, 10) + byte);
  printf("%ld %ld\n", atomic_fetch_or(&word, 6), atomic_fetch_xor(&word, 3));
  real += 1.5;
  printf("%g %ld\n", real, word);
}
