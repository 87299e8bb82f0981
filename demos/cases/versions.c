// Names with versions: the older of two functions of the C library, which fails without room for
// the result, by the assembly of the module and by that of an object file.
// object: versions_object.c
// gate: B
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

__asm__(".symver old_realpath, realpath@GLIBC_2.2.5");
char *old_realpath(const char *path, char *to);
int versions_object(void);

int main(void) {
  char *there = realpath("/", 0);
  char *absent = old_realpath("/", 0);
  printf("%s %d %d\n", there, absent == 0, errno == EINVAL);
  printf("%d\n", versions_object());
  free(there);
}
