// Indirect functions: the resolver runs once, before constructors; the address is
// usable from data and from another module.
// gate: D
// extra: ifunc_user.c
#include <stdio.h>

int resolved;
static int fast(int x) { return x + 1000; }
static int slow(int x) { return x + 2000; }

static int (*resolve(void))(int) {
  resolved++;
  return resolved ? fast : slow;
}

int chosen(int x) __attribute__((ifunc("resolve")));
int call_chosen(int x);
int (*chosen_elsewhere(void))(int);
static int (*const in_data)(int) = chosen;

__attribute__((constructor)) static void early(void) { printf("early %d\n", chosen(0)); }

int main(void) {
  printf("%d %d %d\n", chosen(1), call_chosen(2), in_data(3));
  printf("%d %d\n", chosen_elsewhere()(4), resolved > 0);
}
