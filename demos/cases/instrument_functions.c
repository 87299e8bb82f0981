// Hooks at entries and returns get the address of the function that is entered, the one
// its name means everywhere, from whatever code it runs in: called directly and through
// pointers, static, recursive, inlined, in another file.
// flags: -finstrument-functions
// extra: instrument_functions_other.c
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PLAIN __attribute__((no_instrument_function))
typedef int function(int);

int direct(int x);
int recursive(int x);
int in_tail(int x);
int elsewhere(int x);
int main(int argc, char **argv);
function *static_elsewhere(void);
__attribute__((noinline)) static int local(int x);
static inline int inlined(int x);
__attribute__((always_inline)) static inline int always(int x);
__attribute__((const, noinline)) static int pure(int x);

static struct { void *at; const char *name; } known[] = {
    {(void *)main, "main"},   {(void *)direct, "direct"},       {(void *)recursive, "recursive"},
    {(void *)local, "local"}, {(void *)inlined, "inlined"},     {(void *)always, "always"},
    {(void *)pure, "pure"},   {(void *)in_tail, "in_tail"},     {(void *)elsewhere, "elsewhere"},
    {NULL, "static_there"},   {(void *)static_elsewhere, "static_elsewhere"},
};

static unsigned entered[16], left[16], unknown, unbalanced, depth, deepest;
static void *stack[256];
static int told;

PLAIN static int number_of(void *function) {
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].at == function) return (int)i;
  return -1;
}

PLAIN static void tell(const char *what, void *function) {
  int number = number_of(function);
  if (told && function != (void *)pure)
    printf("%*s%s %s\n", (int)depth, "", what, number < 0 ? "?" : known[number].name);
}

PLAIN void __cyg_profile_func_enter(void *function, void *call_site) {
  int number = number_of(function);
  if (number < 0) unknown++;
  else entered[number]++;
  if (call_site == NULL) unknown++;
  tell("enter", function);
  if (depth < 256) stack[depth] = function;
  if (++depth > deepest) deepest = depth;
}

PLAIN void __cyg_profile_func_exit(void *function, void *call_site) {
  int number = number_of(function);
  if (number < 0) unknown++;
  else left[number]++;
  if (call_site == NULL) unknown++;
  if (depth == 0 || (--depth < 256 && stack[depth] != function)) unbalanced++;
  tell("leave", function);
}

__attribute__((noinline)) int direct(int x) { return x + 1; }
__attribute__((noinline)) int recursive(int x) { return x < 2 ? x : recursive(x - 1) + recursive(x - 2); }
static int local(int x) { return direct(x) * 2; }
static inline int inlined(int x) { return x ^ 5; }
static inline int always(int x) { return x - 3; }
static int pure(int x) { return x * x; }
__attribute__((noinline)) int in_tail(int x) { return local(x + 1); }

PLAIN static unsigned round_of(unsigned sum, int i) {
  static function *volatile pointers[] = {direct, local, recursive, inlined, elsewhere};
  sum += (unsigned)(direct(i) + local(i) + recursive(6) + inlined(i) + always(i));
  sum += (unsigned)(in_tail(i) + elsewhere(i) + static_elsewhere()(i));
  (void)pure(i); /* A compiler may leave it out with its hooks. */
  for (int p = 0; p < 5; p++) sum += (unsigned)pointers[p](i % 7);
  return sum;
}

int main(int argc, char **argv) {
  known[9].at = (void *)static_elsewhere();
  Dl_info info;
  told = 1;
  unsigned sum = round_of(0, 3);
  told = 0;
  for (int i = 0; i < 2000; i++) sum = round_of(sum, i);
  printf("sum %u, unknown %u, unbalanced %u, deepest %u, open %u\n", sum, unknown, unbalanced,
         deepest, depth);
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, "pure"))
      printf("%s %u %u\n", known[i].name, entered[i], left[i]);
  printf("pure %d\n", entered[6] == left[6]);
  /* What the hook got is what the C library knows. */
  int found = dladdr((void *)direct, &info);
  printf("%d\n", !found || info.dli_saddr == NULL || info.dli_saddr == (void *)direct);
}
