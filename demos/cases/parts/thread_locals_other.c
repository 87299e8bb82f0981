// Thread-locals for thread_locals.c.
extern _Thread_local int initialized;
_Thread_local long elsewhere = 7;
long bump_elsewhere(void) { return ++elsewhere; }
int *address_of_initialized(void) { return &initialized; }
