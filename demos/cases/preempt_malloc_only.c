// A program with a malloc of its own and nothing else of the family: what the C library makes
// by it is released by the library's free, in a child, too.
// flags: -fno-builtin
// gate: D
// options: -v
// no-log: do not see this definition
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
static long calls;
void *malloc(size_t size) {
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  return __libc_malloc(size);
}

static int by(char *(*copy)(const char *)) {
  long before = calls;
  char *text = copy("a text");
  int made = (int)(calls - before);
  text = realloc(text, 1000);
  int same = !strcmp(text, "a text");
  free(text);
  return made * 10 + same;
}
static char *own(const char *text) { return strcpy(malloc(strlen(text) + 1), text); }
static char *line(const char *text) {
  char *made = NULL;
  size_t room = 0;
  FILE *in = fmemopen((void *)text, strlen(text), "r");
  if (getline(&made, &room, in) < 0) return NULL;
  fclose(in);
  return made;
}

int main(void) {
  printf("%d %d %d\n", by(strdup), by(own), by(line) > 10);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    printf("%d %d %d\n", by(strdup), by(own), by(line) > 10);
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  printf("%d\n", status);
  free(calloc(3, 5));
}
