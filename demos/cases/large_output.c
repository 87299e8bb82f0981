// Megabytes of output, by stdio and by write, in order.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  char line[128];
  for (int i = 0; i < 40000; i++) printf("line %d of some length, %x\n", i, i * 2654435761u);
  fflush(stdout);
  for (int i = 0; i < 1000; i++) {
    int n = snprintf(line, sizeof line, "written %d\n", i);
    if (write(1, line, (size_t)n) != n) return 1;
  }
  puts("end");
}
