// The same names as in internal_names.c, other meanings.
static int state = 1000;
__attribute__((noinline)) static int helper(int x) { return x * state; }
__attribute__((noinline)) static int counter(void) {
  static int count = 0;
  return ++count;
}
static int (*volatile pointer)(int) = helper;
int other(int x) { return helper(x) + counter() + pointer(0); }
const char *other_text(void) { return "text"; }
