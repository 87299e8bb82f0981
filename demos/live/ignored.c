/* Says whether whoever started it had it ignore what a closed pipe does. */
#include <signal.h>
#include <stdio.h>

int main(void) {
  struct sigaction action;
  if (sigaction(SIGPIPE, NULL, &action)) return 1;
  printf("%d\n", action.sa_handler == SIG_IGN);
  return 0;
}
