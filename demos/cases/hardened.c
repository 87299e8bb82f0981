// What distributions compile with: stack protector, control-flow protection, stack
// clash protection, fortified libc calls, sections for each function; a smashed stack
// is found.
// flags: -fstack-protector-all -fcf-protection=full -fstack-clash-protection -ffunction-sections -fdata-sections -fno-plt -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
// vary: --tiers 2
// vary: --tiers 3
// signal: SIGABRT
// stderr: same
// gate: B
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) static size_t copy(const char *text) {
  char buffer[64];
  strcpy(buffer, text);
  return strlen(buffer);
}

__attribute__((noinline)) static int large_frame(int n) {
  volatile char frame[100000];
  for (unsigned i = 0; i < sizeof frame; i += 1000) frame[i] = (char)n;
  return frame[99000];
}

__attribute__((noinline)) static void smash(char *p, size_t n) {
  for (size_t i = 0; i < n; i++) ((volatile char *)p)[i] = 'x';
}

__attribute__((noinline)) static int smashed(size_t n) {
  char buffer[16];
  smash(buffer, n);
  return buffer[0];
}

int main(void) {
  printf("%zu %d %d\n", copy("text"), large_frame(7), smashed(16));
  fflush(stdout);
  return smashed(64);
}
