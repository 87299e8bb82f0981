// Threads of the runtime end with a word about it; a filter that allows what they need is none of
// their business.
// status: 0
// modes: lazy
// levels: O1-no-passes
// options: -vv
// log: the program gives up system calls that threads of ours make
// log: functions had no code yet .. compiled
// log: all is compiled, and no thread of ours is left
#include "parts/forbid.h"
#include "parts/hot.h"

__attribute__((noinline)) static unsigned later(unsigned x) { return hot(x) + 1; }

int main(void) {
  forbid(SYS_ptrace, SECCOMP_RET_KILL_PROCESS);
  printf("%u\n", keep_hot(200));
  fflush(stdout);
  forbid(SYS_futex, SECCOMP_RET_KILL_PROCESS);
  printf("%u %u\n", keep_hot(200), later(3));
}
