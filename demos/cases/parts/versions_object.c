#include <stdlib.h>

__asm__(".symver oldest_realpath, realpath@GLIBC_2.2.5");
char *oldest_realpath(const char *path, char *to);

int versions_object(void) { return oldest_realpath("/", 0) == 0; }
