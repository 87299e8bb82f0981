// Tables of labels that are not `const`, in the shapes in which programs have them: some are read
// by one function only, others are written to, copied, exported or led to by other tables.
// vary: --baseline off
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N __attribute__((noinline))
typedef unsigned char u8;
static const u8 code[] = { 0, 1, 5, 2, 1, 9, 3, 4, 5 };
#define BODY(DISPATCH) \
  long acc = 0, i = n; const u8 *pc = code; \
  DISPATCH; \
load: acc ^= i; DISPATCH; \
add: acc += *pc++; DISPATCH; \
mul: acc = acc * 31 + 7; DISPATCH; \
dec: i--; DISPATCH; \
jnz: if (i > 0) pc = code; DISPATCH; \
halt: return acc;
N static long plain(long n) { static void *ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt }; BODY(goto *ops[*pc++]) }
N static long local(long n) { void *ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt }; BODY(goto *ops[*pc++]) }
N static long constant(long n) { static const void *const ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt }; BODY(goto *ops[*pc++]) }
N static long relative(long n) { static const int ops[] = { &&load - &&base, &&add - &&base, &&mul - &&base, &&dec - &&base, &&jnz - &&base, &&halt - &&base };
 base:; BODY(goto *(&&base + ops[*pc++])) }
N static long relative_var(long n) { static int ops[] = { &&load - &&load, &&add - &&load, &&mul - &&load, &&dec - &&load, &&jnz - &&load, &&halt - &&load };
 BODY(goto *(&&load + ops[*pc++])) }
struct op { const char *name; void *at; int len; };
N static long structs(long n) { static struct op ops[] = { {"load",&&load,1}, {"add",&&add,2}, {"mul",&&mul,1}, {"dec",&&dec,1}, {"jnz",&&jnz,1}, {"halt",&&halt,0} }; BODY(goto *ops[*pc++].at) }
N static long nested(long n) {
  static void *lo[] = { &&load, &&add, &&mul }; static void *hi[] = { &&dec, &&jnz, &&halt };
  static void **both[] = { lo, hi };
  BODY(do { int o = *pc++; goto *both[o / 3][o % 3]; } while (0)) }
N static long copied(long n) { static void *ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt }; void *mine[6]; memcpy(mine, ops, sizeof mine); BODY(goto *mine[*pc++]) }
N static long stored(long n, int swap) { static void *ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt };
  if (swap) { ops[1] = &&mul2; ops[0] = ops[3]; }

  long acc = 0, i = n; const u8 *pc = code;
  goto *ops[*pc++];
load: acc ^= i; goto *ops[*pc++];
add: acc += *pc++; goto *ops[*pc++];
mul: acc = acc * 31 + 7; goto *ops[*pc++];
mul2: acc = acc * 17 + *pc++; goto *ops[*pc++];
dec: i--; goto *ops[*pc++];
jnz: if (i > 0) pc = code; goto *ops[*pc++];
halt: return acc; }
N static void touch(void **t, int a, int b) { void *x = t[a]; t[a] = t[b]; t[b] = x; }
N static long escaped(long n) { static void *ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt };
  touch(ops, 2, 3);
  BODY(goto *ops[*pc++]) }
static void **exported;
N static long threaded(long n, long *prog) { static void *ops[] = { &&load, &&add, &&mul, &&dec, &&jnz, &&halt };
  if (!prog) { exported = ops; return 0; }
  long acc = 0, i = n; long *pc = prog;
#define NX goto *(void *)*pc++
  NX;
load: acc ^= i; NX;
add: acc += *pc++; NX;
mul: acc = acc * 31 + 7; NX;
dec: i--; NX;
jnz: if (i > 0) pc = prog; NX;
halt: return acc; }
N static int compares(int k) { static void *t[] = { &&a, &&b, &&a }; void *p = k == 1 ? &&a : k == 2 ? &&b : &&c;
  int r = (p == t[0]) + 2 * (p == t[1]) + 4 * (t[0] == t[2]) + 8 * (&&a == &&b);
  goto *p; a: return r + 100; b: return r + 200; c: return r + 300; }
int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 3000;
  for (int k = 0; k < 3; k++) {
    printf("%ld %ld %ld\n", plain(n + k), local(n + k), constant(n + k));
    printf("%ld %ld\n", relative(n + k), relative_var(n + k));
    printf("%ld %ld %ld\n", structs(n + k), nested(n + k), copied(n + k));
    printf("%ld\n", stored(n + k, k == 1));
    threaded(0, 0);
    long prog[9]; int j = 0; for (unsigned x = 0; x < sizeof code; x++) { prog[j++] = (long)exported[code[x]]; if (code[x] == 1) prog[j++] = code[++x]; }
    printf("%ld\n", threaded(n + k, prog));
    printf("%d %d %d\n", compares(1), compares(2), compares(3));
  }
  printf("%ld\n", escaped(n) );
  return 0;
}
