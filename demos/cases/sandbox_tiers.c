// As `sandbox.c`, with all code at one tier.
// status: 3
// modes: lazy
// levels: O1-no-passes
// flags: -pthread
// options: --tiers 2
// vary: --tiers 3
#include "parts/sandbox.h"
