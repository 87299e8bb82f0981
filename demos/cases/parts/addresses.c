/* The library of `library_addresses.c`. */
int addresses_shared = 1, addresses_table[3] = {1, 2, 3};

__attribute__((visibility("hidden"), noinline)) int addresses_hidden(int x) { return x + 1; }
__attribute__((noinline)) static int addresses_local(int x) { return x + 2; }

int addresses_twice(int x) { return x * 2; }
int addresses_is(int (*given)(int)) { return given == addresses_twice; }
int (*addresses_given(void))(int) { return addresses_twice; }
int addresses_call(int (*given)(int), int x) { return given(x); }
int addresses_hidden_call(int x) { return addresses_hidden(x) * 10 + addresses_local(x); }
int addresses_sum(void) {
  int sum = addresses_shared;
  for (int at = 0; at < 3; at++) sum += addresses_table[at];
  return sum;
}
int addresses_changes(int by) {
  addresses_table[2] += by;
  return addresses_shared++;
}
