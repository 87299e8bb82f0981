// A filter that forbids perf events and timers, as containers have: nothing can be
// sampled, and counters alone bring what is hot to tier 2.
// levels: O0 O1-no-passes
// modes: lazy
// options: -vv
// log: cannot be sampled with .. perf cpu-clock .. perf_event_open .. Operation not permitted
// log: cannot be sampled with .. thread timers .. a timer for thread .. Operation not permitted
// log: no samples: counters alone say what is hot
// log: Published .. "hot" .. tier: Optimized
#include "parts/forbid.h"
#include "parts/hot.h"
#include <errno.h>

int main(void) {
  forbid(SYS_perf_event_open, SECCOMP_RET_ERRNO | EPERM);
  forbid(SYS_timer_create, SECCOMP_RET_ERRNO | EPERM);
  printf("%u\n", keep_hot(600));
}
