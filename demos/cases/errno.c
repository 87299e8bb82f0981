// errno survives first calls, of our own functions and of libc's.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUNCTIONS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define DEFINE(n) \
  __attribute__((noinline)) static int f##n(int x) { __asm__ volatile("" : "+r"(x)); return x + n; }
#define CALL(n) sum += f##n(sum); if (errno != 1234) printf("lost in " #n ": %d\n", errno);
FUNCTIONS(DEFINE)

int main(void) {
  errno = 1234;
  int sum = 0;
  FUNCTIONS(CALL)
  volatile double x = sum;
  volatile size_t n = strlen("text") + (size_t)abs(-3);
  double y = fabs(x) + floor(x);
  printf("%d %g %zu %d\n", sum, y, (size_t)n, errno);
  printf("%d %d\n", close(-1), errno == EBADF);
}
