// The second file of init_array.c.
#include <stdio.h>

__attribute__((constructor)) static void constructor(void) { puts("other constructor"); }
__attribute__((destructor)) static void destructor(void) { puts("other destructor"); }

static void in_array(void) { puts("other init_array"); }
static void in_last_array(void) { puts("other fini_array"); }
__attribute__((section(".init_array"), used)) static void (*entry)(void) = in_array;
__attribute__((section(".fini_array"), used)) static void (*last_entry)(void) = in_last_array;
