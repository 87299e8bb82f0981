// Hooks that are put in after inlining, by code generation: how often they are called
// depends on what was inlined, but they are called with the address that the function's
// name means, and as often at returns as at entries.
// flags: -finstrument-functions-after-inlining
// extra: instrument_inlined_other.c
#include <stdio.h>

#define PLAIN __attribute__((no_instrument_function))
typedef int function(int);

int direct(int x);
int recursive(int x);
int elsewhere(int x);
function *static_elsewhere(void);
int main(void);
__attribute__((noinline)) static int local(int x);
static inline int inlined(int x);

static struct { void *at; unsigned entered, left; } known[] = {
    {(void *)main}, {(void *)direct}, {(void *)recursive}, {(void *)local},
    {(void *)inlined}, {(void *)elsewhere}, {(void *)static_elsewhere}, {NULL},
};
enum { KNOWN = sizeof known / sizeof *known };

static unsigned unknown, unbalanced, depth;
static void *stack[256];

PLAIN void __cyg_profile_func_enter(void *function, void *call_site) {
  int number = 0;
  while (number < KNOWN && known[number].at != function) number++;
  if (number == KNOWN || call_site == NULL) unknown++;
  else known[number].entered++;
  if (depth < 256) stack[depth++] = function;
}

PLAIN void __cyg_profile_func_exit(void *function, void *call_site) {
  int number = 0;
  while (number < KNOWN && known[number].at != function) number++;
  if (number == KNOWN || call_site == NULL) unknown++;
  else known[number].left++;
  if (depth == 0 || stack[--depth] != function) unbalanced++;
}

__attribute__((noinline)) int direct(int x) { return x + 1; }
__attribute__((noinline)) int recursive(int x) { return x < 2 ? x : recursive(x - 1) + recursive(x - 2); }
static int local(int x) { return direct(x) * 2; }
static inline int inlined(int x) { return x ^ 5; }

int main(void) {
  static function *volatile pointers[] = {direct, local, recursive, inlined, elsewhere};
  function *there = static_elsewhere();
  known[7].at = (void *)there;
  unsigned sum = 0;
  for (int i = 0; i < 2000; i++) {
    sum += (unsigned)(direct(i) + local(i) + recursive(6) + inlined(i) + elsewhere(i) + there(i));
    for (int p = 0; p < 5; p++) sum += (unsigned)pointers[p](i % 7);
  }
  printf("sum %u, unknown %u, unbalanced %u, open %u\n", sum, unknown, unbalanced, depth);
  /* Whom a volatile pointer leads to is not inlined everywhere. */
  for (int i = 0; i < KNOWN; i++)
    printf("%d %d\n", i < 1 || i > 5 || known[i].entered != 0,
           known[i].entered - known[i].left == (i == 0));
}
