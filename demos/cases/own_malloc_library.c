// The program's own malloc is libc's, too: what `strdup` returns goes back to it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) unsigned char arena[1 << 20];
static size_t used;
static int foreign;

void *malloc(size_t size) {
  size_t *p = (size_t *)(arena + used);
  used += (size + 31) & ~(size_t)15;
  if (used > sizeof arena) return NULL;
  *p = size;
  return p + 2;
}
void free(void *p) {
  foreign += p && ((uintptr_t)p < (uintptr_t)arena || (uintptr_t)p >= (uintptr_t)arena + sizeof arena);
}
void *calloc(size_t count, size_t size) {
  void *p = malloc(count * size);
  return p ? memset(p, 0, count * size) : NULL;
}
void *realloc(void *p, size_t size) {
  void *q = malloc(size);
  if (p && q) memcpy(q, p, ((size_t *)p)[-2] < size ? ((size_t *)p)[-2] : size);
  return q;
}

int main(void) {
  char *(*volatile copy)(const char *) = strdup;
  char *text = copy("a string");
  free(text);
  char *own = malloc(10);
  free(own);
  printf("%d of 2 from elsewhere\n", foreign);
}
