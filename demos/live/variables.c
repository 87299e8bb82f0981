/* Variables that clang's optimizer removes or splits, used by functions that are compiled again and
   by some that stay native: both have to mean the same. Prints what each of them finds.

   | variable | natively |
   |---|---|
   | `state`, a structure that is accessed by its fields | `state.0` to `state.3` |
   | `limits`, `names`, `operations`, `defaults`, to which nobody writes | folded into their users |
   | `trace`, which nobody reads | gone |
   | `ready`, a byte that begins as 1 | a flag, which begins as 0 |
   | `level`, a byte that only ever gets one number, which the module does not tell | a flag |
   | `given`, a structure with a field that nobody reads | `given.0`: which field that is, nobody knows |
   | `leads`, to which nobody writes, and `behind`, to which it leads | folded: `behind` escapes |
   | `lone`, a pointer that is only accessed as a whole | `lone` */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define APART __attribute__((noinline))

static struct {
  int count;
  double sum;
  const char *last;
  unsigned short step;
} state = {3, 0.5, "none", 2};

static int twice(int value) { return value * 2; }
static int thrice(int value) { return value * 3; }

static int limits[4] = {10, 20, 30, 40};
static const char *names[3] = {"zero", "one", "two"};
static int (*operations[2])(int) = {twice, thrice};
struct size {
  int wide, high, deep;
};
static struct size defaults = {80, 25, 3};
static int behind = 9;
static int *leads = &behind;

static int trace;
static char ready = 1;
static char level;
static struct {
  int used, unused;
} given;
static const char *lone = "alone";

/* Whoever asks the dynamic loader stays native. */
static int stays_native(void) { return dlsym(RTLD_DEFAULT, "printf") != 0; }

#define SEEN \
  (state.count * 1000 + (int)(state.sum * 10) + state.step + (int)(strlen(state.last) + strlen(lone)))

APART int native_look(void) { return stays_native() ? SEEN : 0; }

APART void native_change(int by) {
  if (!stays_native()) return;
  state.count += by;
  state.last = "native";
  lone = "native, too";
}

APART void *native_address(void) { return stays_native() ? (void *)operations[1] : 0; }

APART int look(void) { return SEEN; }

APART void change(int by) {
  state.count += by;
  state.sum += by * 0.5;
  state.step = (unsigned short)(state.step + by);
  state.last = "compiled again";
}

APART int limit(void) { return limits[2]; }
APART const char *name(unsigned at) { return names[at % 3]; }
APART int operate(int value) { return operations[0](value) + operations[1](value); }
APART void *address(void) { return (void *)operations[1]; }
APART int area(void) {
  struct size copy = defaults;
  return copy.wide * copy.high;
}
APART int led(void) { return *leads; }
APART void note(int value) { trace = value; }

APART int is_ready(void) { return ready; }
APART void finish(void) { ready = 0; }
static void set_level(int to) { level = (char)to; }
APART int get_level(void) { return level; }
APART void raise_level(void) { set_level(5); }
APART void give(int value) { given.used += value, given.unused = value; }
APART int get_given(void) { return given.used; }

int main(int count, char **arguments) {
  (void)arguments;
  printf("%d %d\n", look(), native_look());
  change(count + 3);
  printf("%d %d\n", look(), native_look());
  native_change(count);
  printf("%d %d\n", look(), native_look());
  change(count);
  printf("%d %d\n", look(), native_look());
  for (unsigned at = 0; at < 3; at++) printf("%s ", name(at));
  printf("%d %d %d %d %d\n", limit(), operate(7), area(), led(), address() == native_address());
  note(count);
  printf("%d %d\n", is_ready(), get_level());
  finish();
  raise_level();
  printf("%d %d\n", is_ready(), get_level());
  give(count);
  printf("%d\n", get_given());
  return 0;
}
