// A filter that kills whoever opens a perf event: the runtime finds out by other means
// and takes timers.
// levels: O1-no-passes
// modes: lazy
// options: -vv
// log: a seccomp filter kills on perf_event_open
// log: sampling .. source .. timers
// log: Published .. "hot" .. tier: Optimized
#include "parts/forbid.h"
#include "parts/hot.h"

int main(void) {
  forbid(SYS_perf_event_open, SECCOMP_RET_KILL_PROCESS);
  printf("%u\n", keep_hot(600));
}
