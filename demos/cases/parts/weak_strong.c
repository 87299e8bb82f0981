// Strong definitions for weak.c, and a weak one that loses.
int function(void) { return 2; }
int variable = 2;
__attribute__((weak)) int only_weak(void) { return 20; }
int strong_elsewhere(void) { return 3; }
int ask_function(void) { return function(); }
int *ask_variable(void) { return &variable; }
