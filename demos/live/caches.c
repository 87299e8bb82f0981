/* Says what the environment tells the allocator, and whether a thread keeps four thousand blocks of a
   size for itself. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  enum { BLOCKS = 4000 };
  static void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(1000);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  const char *told = getenv("GLIBC_TUNABLES");
  printf("%s %d\n", told ? told : "none", mallinfo2().uordblks > BLOCKS * 900);
  return 0;
}
