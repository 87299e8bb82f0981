// Half a gigabyte of zeroes that nobody touches costs no memory.
#include <stdio.h>
#include <sys/resource.h>

static char zeroes[512 << 20];
static int touched[1 << 20];

int main(void) {
  zeroes[5] = 1;
  zeroes[sizeof zeroes - 1] = 2;
  touched[7] = 3;
  volatile size_t at = sizeof zeroes / 2;
  printf("%d %d\n", zeroes[5] + zeroes[sizeof zeroes - 1] + zeroes[at], touched[7]);
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  printf("%s\n", use.ru_maxrss < 300 * 1024 ? "small" : "large");
}
