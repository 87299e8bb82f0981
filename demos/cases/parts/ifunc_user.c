// Uses the indirect function of ifunc.c from another module.
int chosen(int x);
int call_chosen(int x) { return chosen(x); }
int (*chosen_elsewhere(void))(int) { return chosen; }
