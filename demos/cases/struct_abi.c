// Structs by value in every class of the psABI, as arguments and results, called
// across modules in both directions and through pointers.
// extra: struct_abi_callee.c
#include <stdio.h>

#define STRUCTS(X)                                                      \
  X(one_int, { int a; })                                                \
  X(two_ints, { int a, b; })                                            \
  X(three_chars, { char a, b, c; })                                     \
  X(two_longs, { long a, b; })                                          \
  X(one_float, { float a; })                                            \
  X(two_floats, { float a, b; })                                        \
  X(three_floats, { float a, b, c; })                                   \
  X(two_doubles, { double a, b; })                                      \
  X(int_double, { int a; double b; })                                   \
  X(double_int, { double a; int b; })                                   \
  X(float_int, { float a; int b; })                                     \
  X(memory, { long a, b, c; })                                          \
  X(packed_pair, { char a; long b; } __attribute__((packed)))           \
  X(extended, { long double a; })                                       \
  X(wide, { __int128 a; })                                              \
  X(complex_float, { _Complex float a; })                               \
  X(array, { unsigned short a[5]; })                                    \
  X(nested, { struct { char a; struct { float b; } c; } d; })           \
  X(with_union, { union { double a; long b; } c; int d; })              \
  X(bits, { unsigned a : 3, b : 29; long c : 40; })

#define DECLARE(name, ...)            \
  struct name __VA_ARGS__;            \
  struct name turn_##name(int before, struct name value, double after, struct name again);
STRUCTS(DECLARE)

#define CALL(name, ...)                                                      \
  {                                                                          \
    struct name value, result;                                               \
    unsigned char *p = (unsigned char *)&value;                              \
    for (unsigned i = 0; i < sizeof value; i++) p[i] = (unsigned char)(i + 1); \
    struct name (*volatile f)(int, struct name, double, struct name) = turn_##name; \
    result = turn_##name(1, value, 2.0, value);                              \
    struct name second = f(1, result, 2.0, value);                           \
    f(0, value, 3.0, second);                                                \
    printf("%s %zu\n", #name, sizeof value);                                 \
  }

double all_at_once(int i, struct one_int a, struct two_longs b, struct two_doubles c,
                   struct int_double d, struct memory e, struct three_floats f,
                   struct two_longs g, struct two_longs h, double i2, struct float_int j);

int main(void) {
  STRUCTS(CALL)
  struct one_int a = {1};
  struct two_longs b = {2, 3};
  struct two_doubles c = {4, 5};
  struct int_double d = {6, 7};
  struct memory e = {8, 9, 10};
  struct three_floats f = {11, 12, 13};
  struct float_int j = {14, 15};
  printf("%g\n", all_at_once(0, a, b, c, d, e, f, b, b, 16, j));
}
