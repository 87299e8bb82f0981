// Standard input is the program's own.
// stdin: first line\nsecond 42 3.5\nthe rest
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  char line[100], word[20], rest[100] = "";
  int number;
  double real;
  if (!fgets(line, sizeof line, stdin)) return 1;
  printf("%s", line);
  printf("%d\n", scanf("%19s %d %lf ", word, &number, &real));
  printf("%s %d %g\n", word, number, real);
  size_t n = fread(rest, 1, sizeof rest - 1, stdin);
  printf("%zu [%s] %d\n", n, rest, feof(stdin) != 0);
  printf("%zd %d\n", read(0, rest, 1), isatty(0));
}
