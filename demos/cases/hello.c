// The smallest program with output, arguments and a status.
// args: one two
// status: 3
#include <stdio.h>

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) printf("%d %s\n", i, argv[i]);
  return argc;
}
