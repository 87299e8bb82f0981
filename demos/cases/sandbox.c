// Filters of system calls that end a process or a thread for each call but its own: what can be
// called is compiled before, and threads of the runtime end.
// status: 3
// modes: lazy baseline tiered eager
// levels: O0 O2
// flags: -pthread
// vary: --tune
#include "parts/sandbox.h"
