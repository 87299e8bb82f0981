// Tentative definitions in two modules are one variable, as large as the larger.
// flags: -fcommon
// extra: common_other.c
// gate: B
#include <stdio.h>

int shared;
char buffer[4];
int initialized;
long *where(void);
void set(int);
char *other_buffer(void);

int main(void) {
  set(77);
  printf("%d %d %d\n", shared, where() == (long *)&shared, initialized);
  printf("%d\n", other_buffer() == buffer);
  for (int i = 0; i < 1000; i++) other_buffer()[i] = (char)i;
  printf("%d %d\n", buffer[3], shared);
}
