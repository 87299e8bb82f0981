// Handlers run in reverse order, may register more, and output is flushed last.
// status: 7
#include <stdio.h>
#include <stdlib.h>

static void third(void) { printf("registered during exit\n"); }
static void second(void) {
  printf("second\n");
  atexit(third);
}
static void first(void) { printf("first, no newline at the end"); }
static void with_status(int status, void *data) { printf("on_exit %d %s\n", status, (char *)data); }

__attribute__((destructor)) static void destructor(void) { printf("\ndestructor"); }

int main(void) {
  atexit(first);
  on_exit(with_status, "data");
  atexit(second);
  printf("main\n");
  exit(7);
}
