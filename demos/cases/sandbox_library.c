// As `sandbox.c`, where a library installs the filters.
// status: 3
// modes: lazy
// levels: O1-no-passes
// flags: -pthread
// library: sandbox_filter.c
long load_filter(void *program);
#define LOAD_FILTER(program) load_filter(program)
#include "parts/sandbox.h"
