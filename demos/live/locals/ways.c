// Local functions in all ways that compilers call them; arithmetic wraps around (-fwrapv). `as` in front of a name: by its type, at each level; `not`:
// otherwise, at -O1 and above. The others are called by their types at some levels.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define APART static __attribute__((noinline))

typedef struct { long a, b; } Two;
typedef struct { long a[5]; } Large;
typedef struct { char c; double d; } Mixed;
typedef float Four __attribute__((vector_size(16)));

int other(int argument);

static int effects;

APART int as_pointer(int *words, int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum += words[i];
  words[0] = sum;
  return sum;
}
APART Two as_two(long a, long b) { effects++; Two two = {a * b, a + b}; return two; }
APART long as_large(Large large) { effects++; large.a[1]++; return large.a[0] + large.a[1] * large.a[4]; }
APART Mixed as_mixed(Mixed mixed) { effects++; mixed.c++; mixed.d *= 2; return mixed; }
APART Four as_vectors(Four a, Four b) { effects++; return a * b + a; }
APART double as_floats(double a, float b, long double c) { effects++; return a * b + (double)c; }
APART int as_variadic(int count, ...) {
  va_list list;
  va_start(list, count);
  int sum = 0;
  while (count--) sum += va_arg(list, int);
  va_end(list);
  return sum;
}
APART unsigned as_recursive(unsigned n) { return n < 2 ? n : as_recursive(n - 1) + as_recursive(n - 2); }
APART int as_odd(int n);
APART int as_even(int n) { effects++; return n == 0 ? 1 : as_odd(n - 1); }
APART int as_odd(int n) { effects++; return n == 0 ? 0 : as_even(n - 1); }
APART char as_small(signed char c, unsigned char d, short e, _Bool f) { effects++; return c * d + e + f; }
APART long as_many(int a, long b, int c, long d, int e, long f, int g, long h, short i) {
  effects++;
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}

// At -O3 its result no longer counts as the place of a structure.
APART Large returned(long a) { effects++; Large large = {{a, a + 1, a + 2, a + 3, a + 4}}; return large; }
// Promoted at -O3. The pointer that is promoted is one again: only the type stays.
APART int promoted(int *word) { return *word * 3; }
APART int promoted_pointer(int **word) { return **word * 3; }
// Loses an argument; the address of the next is taken, so that its calls leave the argument open.
APART int not_removed(int a, int unused) { return a * 5; }
APART int pointed(int a, int unused) { return a + 1; }
int (*volatile hook)(int, int) = pointed;
APART int not_constant(int a, int factor) {
  int sum = 0;
  for (int i = 0; i < a; i++) sum ^= i * factor;
  return sum;
}
APART int not_ignored(int a) { effects += a; return a * 9; }
APART int not_known(int a) { effects += a; return 42; }
APART int not_variadic(int count, ...) { effects++; return count * 3; }
// A copy is made for each function that is passed.
static int specialized(int (*function)(int), int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum += function(i);
  return sum;
}
static int twice(int x) { return x * 2; }
static int square(int x) { return x * x; }

// In the other file a function of this name loses an argument.
APART int same(int a, int b) { effects++; return a * 3 + b; }

static long round_of(int *words, int count) {
  long sum = as_pointer(words, 100) + as_pointer(words, 50 + count);
  Two two = as_two(sum, count);
  Large large = returned(sum);
  large.a[2] = count;
  Mixed mixed = as_mixed((Mixed){count, sum});
  Four four = {1, 2, 3, count};
  four = as_vectors(four, four);
  sum += two.a - two.b + as_large(large) + mixed.c + (long)mixed.d + (long)four[3];
  sum += (long)as_floats(sum, count, sum + 1) + as_variadic(3, count, (int)sum, 4) + as_variadic(2, 1, 2);
  sum += as_recursive(10 + count) + as_even(count) + as_odd(count + 7) + as_small(count, sum, sum >> 3, sum & 1);
  sum += as_many(1, sum, count, 4, 5, 6, count, sum, count);
  sum += as_many(count, 2, sum, count, sum, count, 3, count, 5);
  sum += promoted(words) + promoted(words + 1) + promoted_pointer(&words);
  sum += not_removed(sum, count) + not_removed(count, sum) + pointed(sum, 1) + hook(1, count);
  sum += not_constant(sum & 15, 7) + not_constant(count, 7) + not_known(sum) + not_variadic(count, 4);
  not_ignored(sum);
  sum += specialized(twice, 100 + count) + specialized(square, 100 + count);
  return sum + same(sum, count) + same(count, 3) + other(count);
}

int main(int count, char **words) {
  int *table = malloc(400), rounds = count > 1 ? atoi(words[1]) : 300;
  unsigned long sum = 0;
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < 100; i++) table[i] = i * count + round;
    sum = sum * 31 + round_of(table, count + round % 7);
  }
  printf("%lu %d\n", sum, effects);
}
