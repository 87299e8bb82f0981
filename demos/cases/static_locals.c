// Static locals, also of inline functions and behind recursion, exist once.
#include <stdio.h>

static inline int *slot(int i) {
  static int values[4] = {1, 2, 3, 4};
  return &values[i];
}

__attribute__((noinline)) static int count(int depth) {
  static int calls;
  calls++;
  if (depth) count(depth - 1);
  return calls;
}

int main(void) {
  *slot(2) = 50;
  printf("%d %d\n", *slot(2), *slot(3));
  printf("%d %d\n", count(4), count(0));
  static const char *const names[] = {"a", "b"};
  static const char *const *cursor = names;
  printf("%s", *cursor++);
  printf("%s\n", *cursor);
}
