// Functions in the sections of the arrays run in one order with constructors and destructors: by
// priority, then by file, then as the file has them.
// extra: init_array_other.c
#include <stdio.h>

#define SECTION(name) __attribute__((section(name), used)) static void (*

__attribute__((constructor)) static void constructor(void) { puts("constructor"); }
__attribute__((constructor(300))) static void early_constructor(void) { puts("constructor 300"); }
__attribute__((destructor)) static void destructor(void) { puts("destructor"); }

static void in_array(void) { puts("init_array"); }
static void in_early_array(void) { puts("init_array.300"); }
static void in_last_array(void) { puts("fini_array"); }
SECTION(".init_array") entry)(void) = in_array;
SECTION(".init_array.00300") early_entry)(void) = in_early_array;
SECTION(".fini_array") last_entry)(void) = in_last_array;

int main(void) {
  puts("main");
  return 0;
}
