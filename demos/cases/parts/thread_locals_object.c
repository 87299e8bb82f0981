// A thread-local of thread_locals.c that comes in an object file, in whatever model the
// compiler chose for it.
_Thread_local int in_object = 9;
int bump_in_object(void) { return ++in_object; }
