// The larger tentative definitions of common.c.
int shared;
char buffer[1000];
int initialized = 5;
long *where(void) { return (long *)&shared; }
void set(int value) { shared = value; }
char *other_buffer(void) { return buffer; }
