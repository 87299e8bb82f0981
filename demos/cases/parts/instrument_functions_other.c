// The other file of instrument_functions.c.
typedef int function(int);
int elsewhere(int x);
function *static_elsewhere(void);

__attribute__((noinline)) static int static_there(int x) { return x * 7; }
int elsewhere(int x) { return static_there(x) + 11; }
function *static_elsewhere(void) { return static_there; }
