// A library without fibers of its own: another one has them.
#include "fibers.h"

void fibers_outer_make(int fiber, fiber_body *body) { fiber_make(fiber, body); }

void fibers_outer_go(int fiber) { fiber_go(fiber); }

void fibers_outer_rest(int fiber) { fiber_rest(fiber); }
