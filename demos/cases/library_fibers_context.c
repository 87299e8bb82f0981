// A library the program is linked against makes contexts and swaps them, and calls back.
// library: fibers_context.c
// levels: O0 O1-no-passes O2
// modes: lazy tiered moving
// gate: D
// hazard: libraries
#define make fiber_make
#define go fiber_go
#define rest fiber_rest
#include "parts/resting.h"

int main(void) { call_fibers(); }
