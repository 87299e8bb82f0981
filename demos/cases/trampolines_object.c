// As `trampolines.c`, where an object file has the trampolines, and asks for a stack that code runs on.
// object: trampolines_made.ll
// flags: -pthread
// link: -pthread
#include "trampolines.c"
