// Has a local function of the same name as one of ways.c, which loses an argument.
static int count;

static __attribute__((noinline)) int same(int a, int unused) { count += a; return a * 7; }

int other(int argument) { return same(argument, count) + same(argument + 1, 5) + count; }
