/* Functions that a loop in the same file calls, to which new versions add instructions. The file is too
   large for its callers to be compared by optimizing it.

   Added to functions of which callers know that they have an effect:
       -DACTS       a counter, in one that writes a variable
       -DATOMIC     the same, an atomic one
       -DTHROUGH    a counter, in one that calls through a pointer
       -DCALLS      a counter, in one that calls such a function
       -DOWN        a counter that only the new version has
       -DLINE       a line

   Not only added, or not without effect on callers:
       -DPURE       a counter, in one of whose calls some are left out
       -DTOLD       a counter, in one of which the source says so
       -DARGUMENT   a counter, in one that writes what its argument leads to only
       -DUSES       the argument of the function is added to the counter
       -DPOINTED    a counter to which a pointer leads
       -DOLD        a variable that callers have, too
       -DVALUE      another result
       -DFLOW       a counter under a condition
       -DESCAPES    a counter whose address is kept

       -DOTHER      the other file of the program, and nothing else */
#include <stdio.h>

#define LEFT_ALONE __attribute__((noinline))

extern long hits, pointed;
extern int (*hook)(int);
long counted(void);

#ifdef OTHER
long hits, pointed;
static int twice(int x) { return 2 * x; }
int (*hook)(int) = twice;
long *table[] = {&pointed};
long counted(void) { return hits + *table[0]; }
#else

long effects;
volatile long left;
struct pair {
  long first, second;
};

LEFT_ALONE int acts(int x) {
#ifdef ACTS
  hits++;
#endif
#ifdef ATOMIC
  __atomic_add_fetch(&hits, 1, __ATOMIC_SEQ_CST);
#endif
#ifdef OWN
  static long own;
  own++;
#endif
#ifdef LINE
  fputs("a line\n", stderr);
#endif
#ifdef USES
  hits += x;
#endif
#ifdef POINTED
  pointed++;
#endif
#ifdef FLOW
  if (left == 5) hits++;
#endif
#ifdef ESCAPES
  static long own, *kept;
  kept = &own;
  own++;
  (*kept)++;
#endif
  effects++;
#ifdef VALUE
  return x + 2;
#else
  return x + 1;
#endif
}

LEFT_ALONE int through(int x) {
#ifdef THROUGH
  hits++;
#endif
#ifdef OLD
  effects += 2;
#endif
  return hook(x);
}

LEFT_ALONE int calls(int x) {
#ifdef CALLS
  hits++;
#endif
  return acts(x) * 10;
}

LEFT_ALONE int pure(int x) {
#ifdef PURE
  hits++;
#endif
  return x * 3;
}

__attribute__((noinline, pure)) int told(int x) {
#ifdef TOLD
  hits++;
#endif
  return hook(x);
}

LEFT_ALONE void argument(struct pair *p) {
#ifdef ARGUMENT
  hits++;
#endif
  p->first = 7;
}

#define FOUR(x) x x x x
#define MANY(x) FOUR(FOUR(FOUR(FOUR(FOUR(x)))))

/* 24,000 instructions, of which none runs. */
void large(void) {
  if (left) {
    MANY(FOUR(left++;) left++; left++; left++; left++;)
  }
}

int main(void) {
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    int x = line[0];
    struct pair pair = {0, x};
    argument(&pair);
    int sum = acts(x) + acts(x + 1) + calls(x);
    long changed = effects;
    int led = through(x);
    changed -= effects;
    int same = pure(x) + pure(x) + told(x) + (int)pair.first;
    large();
    printf("%d %d %d %ld %ld\n", sum, led, same, changed, counted());
    fflush(stdout);
  }
  return 0;
}
#endif
