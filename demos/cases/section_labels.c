// Tables of addresses of labels in a section that the program walks by its bounds, as those of
// sanitizer coverage: each is there once, and a goto reaches what it says.
// gate: B
#include <stdio.h>

extern void *const __start_labels[] __attribute__((weak, visibility("hidden")));
extern void *const __stop_labels[] __attribute__((weak, visibility("hidden")));

__attribute__((noinline)) static int first(int n) {
  static void *const table[] __attribute__((section("labels"), used)) = {&&one, &&two, &&three};
  goto *table[n % 3];
one:
  return n + 100;
two:
  return n + 200;
three:
  return n + 300;
}

__attribute__((noinline)) static int second(int n) {
  static void *const table[] __attribute__((section("labels"), used)) = {&&one, &&two};
  if (n < 0) return table[0] == table[1];
  goto *table[n & 1];
one:
  return n * 3;
two:
  return n * 5;
}

int main(void) {
  int sum = 0, labels = 0, different = 0;
  for (int i = 0; i < 20000; i++) sum += first(i) + second(i);
  for (void *const *p = __start_labels; p < __stop_labels; p++) {
    labels++;
    different += p == __start_labels || p[0] != p[-1];
  }
  printf("%d %d %d\n", sum, labels, different);
}
