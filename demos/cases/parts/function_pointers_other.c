// The other module of function_pointers.c.
#include <stdlib.h>
#include <string.h>

typedef int callback(int);
int global_function(int x);
callback *address_elsewhere(void) { return global_function; }
callback *pass_through(callback *f) { return f; }
size_t (*strlen_elsewhere(void))(const char *) { return strlen; }
void (*free_elsewhere(void))(void *) { return free; }
