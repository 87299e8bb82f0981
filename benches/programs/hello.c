/* The least a program can do that can be seen: what a run costs by itself. */
#include <stdio.h>

int main(void) {
  puts("hello, world");
  return 0;
}
