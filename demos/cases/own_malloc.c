// The program's own malloc serves the program's own calls.
// gate: D
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static _Alignas(16) unsigned char arena[1 << 22];
static size_t used;
static int calls;

void *malloc(size_t size) {
  calls++;
  size_t *p = (size_t *)(arena + used);
  used += (size + 31) / 16 * 16;
  if (used > sizeof arena) return NULL;
  *p = size;
  return (unsigned char *)p + 16;
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t size) {
  void *p = malloc(n * size);
  return p ? memset(p, 0, n * size) : NULL;
}
void *realloc(void *old, size_t size) {
  void *p = malloc(size);
  if (p && (unsigned char *)old >= arena && (unsigned char *)old < arena + sizeof arena)
    memcpy(p, old, ((size_t *)old)[-2] < size ? ((size_t *)old)[-2] : size);
  return p;
}

int main(void) {
  int before = calls;
  char *volatile p = malloc(100);
  strcpy(p, "text");
  p = realloc(p, 1000);
  int *volatile zero = calloc(10, sizeof(int));
  printf("%s %d %d\n", p, zero[9], calls - before);
  printf("%d\n", (unsigned char *)p >= arena && (unsigned char *)p < arena + sizeof arena);
  free(p);
}
