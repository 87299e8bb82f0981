/* A program that may be linked with the library itself. Says whether it has rights of its own, and becomes
   the program that it is given, if any. */
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

__attribute__((noinline)) unsigned work(unsigned state) {
  for (int round = 0; round < 1000; round++) state = (state ^ state >> 13) * 16777619u;
  return state;
}

int main(int count, char **arguments) {
  unsigned state = 2166136261u;
  for (int round = 0; round < 1000; round++) state = work(state);
  printf("%08x %lu\n", state, getauxval(AT_SECURE));
  fflush(stdout);
  if (count > 1) execl(arguments[1], arguments[1], (char *)0);
  return 0;
}
