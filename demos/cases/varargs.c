// Variable arguments: integers, doubles, long doubles, structs, va_copy, and a
// call through a pointer (the count of vector registers travels in al).
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct small { int a; double b; };
struct big { long a[5]; };

__attribute__((noinline)) static double sum(const char *kinds, ...) {
  va_list args, again;
  va_start(args, kinds);
  va_copy(again, args);
  double total = 0;
  for (const char *k = kinds; *k; k++) {
    switch (*k) {
      case 'i': total += va_arg(args, int); break;
      case 'l': total += (double)va_arg(args, long long); break;
      case 'd': total += va_arg(args, double); break;
      case 'L': total += (double)va_arg(args, long double); break;
      case 's': { struct small s = va_arg(args, struct small); total += s.a + s.b; break; }
      case 'b': { struct big b = va_arg(args, struct big); total += (double)b.a[4]; break; }
      case 'p': total += (double)strlen(va_arg(args, char *)); break;
    }
  }
  va_end(args);
  if (*kinds == 'i') total += 1000 * va_arg(again, int);
  va_end(again);
  return total;
}

__attribute__((noinline)) static int print(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vprintf(format, args);
  va_end(args);
  return n;
}

int main(void) {
  double (*volatile f)(const char *, ...) = sum;
  struct small s = {1, 2.5};
  struct big b = {{1, 2, 3, 4, 5}};
  printf("%g\n", f("iiiiiiii", 1, 2, 3, 4, 5, 6, 7, 8));
  printf("%g\n", f("dddddddddd", 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.));
  printf("%g\n", f("iLdsbpl", 1, 2.5L, 3.5, s, b, "four", 1LL << 40));
  printf("%d\n", print("%s %d %.3f %Lg %c %lld %5s|%-5d|\n", "text", 42, 3.25, 1.5L, 'x',
                       -1LL << 50, "r", 7));
}
