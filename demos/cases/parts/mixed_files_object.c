// The object file of mixed_files.c.
#include <stdlib.h>
extern int shared;
int back(int);
int from_text(int);
int object_data[3] = {1, 2, 3};
static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 1000; }
int from_object(int x) { shared++; return back(x) + from_text(1) + abs(-constructed); }
int (*object_pointer(void))(int) { return back; }
