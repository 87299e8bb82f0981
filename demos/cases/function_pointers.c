// A function has one address: in every module, in data, for libc's own functions too,
// before and after its first call.
// gate: B
// extra: function_pointers_other.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int callback(int);
int global_function(int x) { return x + 1; }
__attribute__((noinline)) static int local_function(int x) { return x + 2; }
static callback *const in_data[] = {global_function, local_function};
callback *address_elsewhere(void);
callback *pass_through(callback *);
size_t (*strlen_elsewhere(void))(const char *);
void (*free_elsewhere(void))(void *);

int main(void) {
  callback *volatile before = global_function;
  printf("%d\n", before(1) + local_function(1));
  callback *volatile after = global_function;
  printf("%d %d\n", before == after, before == address_elsewhere());
  printf("%d %d\n", in_data[0] == after, in_data[1] == pass_through(local_function));
  printf("%d %d\n", strlen == strlen_elsewhere(), free == free_elsewhere());
  printf("%d\n", address_elsewhere()(41));
}
