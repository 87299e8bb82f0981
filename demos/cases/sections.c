// Data collected in a section of its own, from two modules, between the symbols that
// linkers make; also a function in a named section.
// gate: D
// extra: sections_other.c
#include <stdio.h>

struct entry { const char *name; int (*run)(int); };
#define REGISTER(n, f) \
  static const struct entry n##_entry __attribute__((section("registry"), used)) = {#n, f}

extern const struct entry __start_registry[], __stop_registry[];
extern const int __start_nothing[] __attribute__((weak));

static int first(int x) { return x + 1; }
static int second(int x) { return x + 2; }
REGISTER(first, first);
REGISTER(second, second);

__attribute__((section("special_text"), noinline)) static int special(int x) { return x * 5; }

int main(void) {
  int count = 0, sum = 0;
  for (const struct entry *e = __start_registry; e < __stop_registry; e++) {
    printf("%s\n", e->name);
    sum += e->run(10);
    count++;
  }
  printf("%d %d %d %d\n", count, sum, special(3), __start_nothing == 0);
}
