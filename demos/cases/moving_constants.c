// A line is printed by the last call of a function that is compiled again, moved and freed
// while the line waits for the lock of stdout: the text, which no module has before it is
// optimized, is then known to a register of libc only. Strings that a function returned, and
// what was copied from padded ones, outlive its code as well.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: constants
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "parts/fresh.h"

#define SAY(n, text) \
  __attribute__((noinline)) static void say##n(void) { printf(text "\n"); }
SAY(0, "the first line waits")
SAY(1, "so does the second one")
SAY(2, "and the third")
SAY(3, "this is the last")
static void (*const say[])(void) = {say0, say1, say2, say3};
enum { ROUNDS = sizeof say / sizeof *say, SAYERS = 4 };

static void *sayer(void *round) {
  say[(long)round]();
  return NULL;
}

__attribute__((noinline)) static const char *name(int i) {
  switch (i) {
  case 0: return "zero";
  case 1: return "one";
  case 2: return "two";
  case 3: return "three";
  case 4: return "four";
  case 5: return "five";
  default: return "many";
  }
}

__attribute__((noinline)) static char *pad(char *to) {
  return strncpy(to, "padded", 100);
}

int main(void) {
  const char *names[7];
  char padded[100];
  for (int i = 0; i < 7; i++) names[i] = name(i);
  for (int i = 0; i < ROUNDS; i++) say[i]();
  for (long round = 0; round < ROUNDS; round++) {
    pthread_t ids[SAYERS];
    memset(padded, 'x', sizeof padded);
    flockfile(stdout);
    // Each comes in at another tier.
    for (int i = 0; i < 8; i++) {
      if (i < SAYERS) pthread_create(&ids[i], NULL, sayer, (void *)round);
      usleep(20000);
      call_fresh((int)round * 16 + i * 2, 2);
    }
    if (pad(padded) != padded || padded[99]) return 1;
    funlockfile(stdout);
    for (int i = 0; i < SAYERS; i++) pthread_join(ids[i], NULL);
    printf("%s %s\n", padded, name((int)round));
  }
  for (int i = 0; i < 7; i++) printf("%s %d\n", names[i], names[i] == name(i));
}
