// longjmp around loops that are left: back to where the function was before its loop, within
// the loop, out of it to a caller, and out of a handler that interrupted it; variables that
// are not written between keep what they held, in whichever frame.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static jmp_buf place, caller;
static sigjmp_buf handled;

__attribute__((noinline)) static void jump(jmp_buf where, int value) { longjmp(where, value); }

// The set is before the loop, in the old frame; the jump comes from the loop.
__attribute__((noinline)) static int before(int rounds) {
  volatile int tries = 0;
  int written[4] = {rounds, rounds + 1, rounds + 2, rounds + 3};
  int value = setjmp(place);
  tries = tries + 1;
  for (int i = 0; i < rounds; i++) {
    if (i == 5 + tries && tries < 4) jump(place, i);
  }
  return tries * 100 + value + written[3];
}

// The set is in the loop.
__attribute__((noinline)) static int within(int rounds) {
  volatile int sum = 0, jumps = 0;
  for (volatile int i = 0; i < rounds; i++) {
    int value = setjmp(place);
    sum += i + value;
    if (i % 3 == 1 && value < 2) {
      jumps++;
      jump(place, value + 1);
    }
  }
  return sum * 1000 + jumps;
}

// Over both frames to the caller.
__attribute__((noinline)) static void out(int rounds, int at) {
  char text[64];
  snprintf(text, sizeof text, "at %d", at);
  for (int i = 0; i < rounds; i++) {
    for (int j = 0; j < 4; j++) {
      if (i == at && j == 2) {
        puts(text);
        jump(caller, i + 1);
      }
    }
  }
}

static void on_signal(int number) { siglongjmp(handled, number); }

// Out of a handler.
__attribute__((noinline)) static int interrupted(int rounds) {
  volatile int caught = 0;
  volatile unsigned long spun = 0;
  if (sigsetjmp(handled, 1)) caught++;
  for (int i = 0; i < rounds; i++) {
    spun++;
    if (i == 20 && caught < 5) raise(SIGUSR1);
  }
  return caught;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGUSR1, &action, NULL);
  printf("%d %d\n", before(30), before(6));
  printf("%d %d\n", within(3), within(40));
  for (volatile int at = 0; at < 12; at += 3) {
    int value = setjmp(caller);
    if (value == 0) out(10, at);
    printf("%d\n", value);
  }
  printf("%d\n", interrupted(60));
}
