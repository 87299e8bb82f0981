#include <string.h>

int hook(void) { return 2; }
const int level = 5;
__attribute__((visibility("hidden"))) int hidden_hook(void) { return 2; }

/* The text is in this file, too, and at the end of another one. */
int there(void) { return (int)(strlen("none") + strlen("all or none") + strlen("")); }
