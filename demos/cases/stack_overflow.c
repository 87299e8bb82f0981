// Endless recursion is the program's own SIGSEGV.
// signal: SIGSEGV
// stderr: same
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static int endless(int x) {
  volatile char frame[4096];
  frame[x & 4095] = 1;
  return endless(x + 1) + frame[0];
}
int main(void) {
  write(1, "before\n", 7);
  printf("in a buffer");
  printf("%d", endless(1));
  return 0;
}
