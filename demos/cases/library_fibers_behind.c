// A library that only another library needs makes contexts and swaps them.
// library: fibers_outer.c fibers_context.c
// levels: O0 O1-no-passes O2
// modes: lazy tiered moving
// gate: D
// hazard: libraries
#include "parts/fibers.h"
void fibers_outer_make(int fiber, fiber_body *body), fibers_outer_go(int fiber), fibers_outer_rest(int fiber);
#define make fibers_outer_make
#define go fibers_outer_go
#define rest fibers_outer_rest
#include "parts/resting.h"

int main(void) { call_fibers(); }
