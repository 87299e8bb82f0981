/* A library whose functions are called by `engine_user.c`; with `-DFIXED` it is another version. */
#ifdef FIXED
enum { STEP = 5 };
#else
enum { STEP = 3 };
#endif

static unsigned rounds;

__attribute__((noinline)) static unsigned step(unsigned state) { return state * 31 + STEP; }

unsigned engine_run(unsigned state, int count) {
  rounds++;
  for (int at = 0; at < count; at++) state = step(state) ^ state >> 7;
  return state;
}

unsigned engine_rounds(void) { return rounds; }
