// The other side of struct_abi.c.
#include <stdio.h>

struct one_int { int a; };
struct two_ints { int a, b; };
struct three_chars { char a, b, c; };
struct two_longs { long a, b; };
struct one_float { float a; };
struct two_floats { float a, b; };
struct three_floats { float a, b, c; };
struct two_doubles { double a, b; };
struct int_double { int a; double b; };
struct double_int { double a; int b; };
struct float_int { float a; int b; };
struct memory { long a, b, c; };
struct packed_pair { char a; long b; } __attribute__((packed));
struct extended { long double a; };
struct wide { __int128 a; };
struct complex_float { _Complex float a; };
struct array { unsigned short a[5]; };
struct nested { struct { char a; struct { float b; } c; } d; };
struct with_union { union { double a; long b; } c; int d; };
struct bits { unsigned a : 3, b : 29; long c : 40; };

void show(const char *name, double value) { printf("  %s %.6g\n", name, value); }

#define TURN(name, ...)                                                               \
  struct name turn_##name(int before, struct name v, double after, struct name w) {   \
    double member[] = {__VA_ARGS__};                                                  \
    for (unsigned i = 0; i < sizeof member / sizeof *member; i++) show(#name, member[i]); \
    printf("  %d %g\n", before, after);                                               \
    return before ? v : w;                                                            \
  }

TURN(one_int, v.a, w.a)
TURN(two_ints, v.a, v.b, w.b)
TURN(three_chars, v.a, v.b, v.c, w.c)
TURN(two_longs, v.a, v.b, w.b)
TURN(one_float, v.a, w.a)
TURN(two_floats, v.a, v.b, w.b)
TURN(three_floats, v.a, v.b, v.c, w.c)
TURN(two_doubles, v.a, v.b, w.b)
TURN(int_double, v.a, v.b, w.b)
TURN(double_int, v.a, v.b, w.b)
TURN(float_int, v.a, v.b, w.b)
TURN(memory, v.a, v.b, v.c, w.c)
TURN(packed_pair, v.a, v.b, w.b)
TURN(extended, sizeof v.a, sizeof w.a)
TURN(wide, (double)(long)v.a, (double)(long)(w.a >> 64))
TURN(complex_float, __real__ v.a, __imag__ w.a)
TURN(array, v.a[0], v.a[4], w.a[2])
TURN(nested, v.d.a, v.d.c.b, w.d.c.b)
TURN(with_union, v.c.a, (double)w.c.b, w.d)
TURN(bits, v.a, v.b, v.c, w.c)

double all_at_once(int i, struct one_int a, struct two_longs b, struct two_doubles c,
                   struct int_double d, struct memory e, struct three_floats f,
                   struct two_longs g, struct two_longs h, double i2, struct float_int j) {
  return i + a.a + b.a * 10 + b.b * 100 + c.a + c.b * 3 + d.a + d.b * 7 + e.c * 1000 + f.a +
         f.b * 5 + f.c * 9 + g.b + h.a + i2 * 11 + j.a + j.b * 13;
}
