// What an optimizer sees through and a linker chooses: arguments that went, though the address of
// their function is used in the source, texts that are compared by their addresses, bytes that became
// flags behind references, labels in a local function, weak definitions that another file has.
// extra: seen_through_other.c
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

/* Whoever asks the dynamic loader stays native where there is native code. */
static int stays(void) { return dlsym(RTLD_DEFAULT, "printf") != 0; }

/* Nobody takes its address once `fold` is inlined, and `context` is never used. */
static APART int add(void *context, int a, int b) {
  (void)context;
  return a * 31 + b;
}
static int fold(int (*f)(void *, int, int), void *context, const int *v, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum = f(context, sum, v[i]);
  return sum;
}
APART int folded(const int *v, int n) { return fold(add, (void *)v, v, n); }
APART int called(const int *v) { return add((void *)v, v[0], v[1]); }
APART int folded_natively(const int *v, int n) {
  return stays() ? fold(add, (void *)v, v, n) + add(0, v[1], v[2]) : 0;
}

/* One object, whose address says that nothing was allocated. */
struct text {
  const char *value;
};
static const char *const EMPTY = "";
static const char *const NONE = "none";
static const char *const table[] = {"", "x", "none"};
APART void clear(struct text *text) { text->value = stays() ? EMPTY : 0; }
APART void clear_there(struct text *text) { text->value = stays() ? NONE : 0; }
APART int drop(struct text *text) {
  if (text->value == EMPTY || text->value == NONE) return 0;
  free((char *)text->value);
  return 1;
}
APART int is_first(const char *value, int at) { return value == table[at]; }
APART const char *first(int at) { return stays() ? table[at] : 0; }

/* A byte of two values that is only written through a reference. */
static signed char mode;
static signed char exchange(signed char *place, signed char value) {
  signed char before = *place;
  *place = value;
  return before;
}
APART int on(void) { return exchange(&mode, 2); }
APART int off(void) { return exchange(&mode, 0); }
APART int get(void) { return mode; }
APART int get_natively(void) { return stays() ? mode : -1; }

/* Labels that are data, in a function that is natively a part of its only caller. */
struct code {
  int ready, n;
  char op[8];
  void *pc[9];
};
static int run(struct code *code) {
  if (!code->ready) {
    for (int i = 0; i < code->n; i++) code->pc[i] = code->op[i] ? &&step : &&end;
    code->ready = 1;
  }
  int sum = 0;
  void **pc = code->pc;
  goto **pc++;
step:
  sum++;
  goto **pc++;
end:
  return sum;
}
APART int execute(struct code *code) { return run(code); }

/* The other file's count. */
static int own_hook(void) { return 1; }
int hook(void) __attribute__((weak, alias("own_hook")));
__attribute__((weak)) const int level = 1;
__attribute__((weak, visibility("hidden"))) int hidden_hook(void) { return 1; }
APART int use_hook(void) { return hook() * 10 + own_hook(); }
APART int use_level(void) { return level; }
APART int use_hidden(void) { return hidden_hook(); }

int there(void);

int main(void) {
  const int v[] = {1, 2, 3, 4, 5};
  struct code code = {0, 4, {1, 1, 1, 0}, {0}};
  struct text text;
  for (int round = 0; round < 3; round++) {
    printf("%d %d %d\n", folded(v, 5), called(v), folded_natively(v, 5));
    clear(&text);
    printf("%d ", drop(&text));
    clear_there(&text);
    printf("%d ", drop(&text));
    text.value = strdup("kept");
    printf("%d\n", drop(&text));
    for (int at = 0; at < 3; at++) printf("%d ", is_first(first(at), at));
    printf("%d", get_natively());
    printf(" %d %d %d", on(), get(), get_natively());
    printf(" %d %d %d\n", off(), get(), get_natively());
    printf("%d\n", execute(&code));
    printf("%d %d %d %d\n", use_hook(), use_level(), use_hidden(), there());
  }
}
