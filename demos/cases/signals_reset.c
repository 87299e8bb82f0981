// A program that resets all signals, or ignores them, again and again while its threads run
// is not ended by signals it does not know of.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
// hazard: signals
#define _GNU_SOURCE
#include <signal.h>
#include <unistd.h>
#include "parts/churn.h"

static void set_all(void (*handler)(int)) {
  for (int s = 1; s < 65; s++)
    if (s != SIGKILL && s != SIGSTOP && s != 32 && s != 33) signal(s, handler);
}

int main(void) {
  pthread_t thread[2];
  for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, churn, NULL);
  int wrong = 0;
  for (int i = 0; i < 64; i++) {
    set_all(i % 2 ? SIG_DFL : SIG_IGN);
    call_fresh(i, 1);
    for (int s = 1; s < 65; s++) {
      struct sigaction now;
      if (s == 32 || s == 33 || s == SIGKILL || s == SIGSTOP) continue;
      if (sigaction(s, NULL, &now) || now.sa_handler != (i % 2 ? SIG_DFL : SIG_IGN)) wrong++;
    }
    churn_round(200000);
  }
  churn_stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  printf("wrong %d\n", wrong);
}
