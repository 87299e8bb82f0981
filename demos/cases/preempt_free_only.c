// A program that defines free and realloc alone: the C library's allocations go through them
// all the same, and are counted as natively.
// flags: -fno-builtin
// gate: D
// options: -v
// no-log: do not see this definition
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void __libc_free(void *);
extern void *__libc_realloc(void *, size_t);
static long frees, reallocs;
void free(void *p) {
  if (p) frees++;
  __libc_free(p);
}
void *realloc(void *p, size_t size) {
  reallocs++;
  return __libc_realloc(p, size);
}

static void told(const char *what) {
  printf("%s: %ld %ld\n", what, frees, reallocs);
  frees = reallocs = 0;
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  frees = reallocs = 0;
  free(strdup("text"));
  told("strdup");
  char *made = NULL;
  if (asprintf(&made, "%0300d", 7) < 0) return 1;
  free(made);
  printf("asprintf: %d\n", frees >= 1);
  told("all of it");
  char *room = malloc(10);
  size_t size = 10;
  FILE *in = fmemopen("a line that does not fit into the room there is for it\n", 55, "r");
  if (getline(&room, &size, in) < 0) return 1;
  told("getline");
  fclose(in);
  printf("fclose: %d\n", frees > 0);
  free(room);
  void *wide = NULL;
  frees = 0;
  if (posix_memalign(&wide, 64, 100)) return 1;
  free(wide);
  told("aligned");
}
