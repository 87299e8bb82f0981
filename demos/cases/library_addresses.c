// An executable at a fixed address and its library agree on what a function's address is, and on
// where the library's variables are, which the linker puts into the executable; a hidden function
// and a local one have the names of others; each keeps its own.
// library: addresses.c
// flags: -fno-pic
// link: -no-pie
// gate: D
#include <stdio.h>

extern int addresses_shared, addresses_table[3];
extern int addresses_twice(int), addresses_is(int (*)(int)), addresses_changes(int);
extern int addresses_call(int (*)(int), int), addresses_hidden_call(int), addresses_sum(void);
extern int (*addresses_given(void))(int);

int addresses_hidden(int x) { return x - 1; }
static int addresses_local(int x) { return x - 2; }
static int counted;
static int back(int x) { return x + ++counted; }

int main(void) {
  int (*twice)(int) = addresses_twice;
  printf("%d %d %d\n", addresses_is(twice), addresses_given() == twice, twice(21));
  addresses_shared = 5;
  addresses_table[1] = 40;
  printf("%d %d\n", addresses_sum(), addresses_changes(3));
  printf("%d %d\n", addresses_shared, addresses_table[2]);
  printf("%d %d\n", addresses_call(back, 7), addresses_call(addresses_twice, 8));
  printf("%d %d %d\n", addresses_hidden(10), addresses_hidden_call(10), addresses_local(10));
  int sum = 0;
  for (int round = 0; round < 20000; round++) sum += addresses_hidden_call(round) + addresses_call(back, round) % 7;
  printf("%d %d\n", sum, counted);
}
