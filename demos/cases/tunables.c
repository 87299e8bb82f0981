// What the environment says to the C library, of us too, is what the program and its children see.
// env: GLIBC_TUNABLES=glibc.malloc.arena_max=2
// levels: O1-no-passes
// vary: --tune
#include <stdio.h>
#include <stdlib.h>

extern char **environ;

int main(void) {
  int variables = 0;
  for (char **at = environ; *at; at++) variables++;
  printf("%s %d\n", getenv("GLIBC_TUNABLES"), variables > 0);
  fflush(stdout);
  return system("echo $GLIBC_TUNABLES");
}
