// Aliases of functions and data, weak aliases, an alias used from another module:
// all have the address of what they stand for.
// gate: B
// extra: aliases_user.c
#include <stdio.h>

static int real_function(int x) { return x * 3; }
int other_name(int x) __attribute__((alias("real_function")));
int weak_name(int x) __attribute__((weak, alias("real_function")));
int real_variable = 11;
extern int variable_alias __attribute__((alias("real_variable")));
int use_alias(int x);
int (*address_of_alias(void))(int);
static int (*const table[])(int) = {real_function, other_name, weak_name};

int main(void) {
  variable_alias++;
  printf("%d %d %d\n", other_name(1), weak_name(2), real_variable);
  printf("%d %d\n", use_alias(5), address_of_alias() == other_name);
  printf("%d %d\n", table[0] == table[1], &variable_alias == &real_variable);
}
