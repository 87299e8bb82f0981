// Environment variables: passed through, changed, seen by children.
// env: CASE_FIRST=one two
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(int argc, char **argv, char **envp) {
  (void)argc, (void)argv;
  printf("%s\n", getenv("CASE_FIRST"));
  printf("%d\n", envp == environ);
  setenv("CASE_SECOND", "2", 1);
  int found = 0;
  for (char **e = environ; *e; e++) found += strncmp(*e, "CASE_", 5) == 0;
  printf("%d %d\n", found, getenv("CASE_THIRD") == NULL);
  fflush(stdout);
  int status = system("printf '%s %s\\n' \"$CASE_FIRST\" \"$CASE_SECOND\"; exit 6");
  printf("%d\n", status >> 8);
  unsetenv("CASE_FIRST");
  printf("%d\n", getenv("CASE_FIRST") == NULL);
}
