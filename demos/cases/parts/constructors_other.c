// More constructors for constructors.c.
#include <stdio.h>
#include <stdlib.h>
static void from_constructor(void) { puts("atexit registered by a constructor"); }
__attribute__((constructor)) static void other(void) {
  puts("c other");
  atexit(from_constructor);
}
__attribute__((constructor(200))) static void middle(void) { puts("c 200"); }
__attribute__((destructor(200))) static void middle_end(void) { puts("d 200"); }
__attribute__((destructor)) static void other_end(void) { puts("d other"); }
