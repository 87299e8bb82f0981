// A plugin opened by another one: it refers to names of the program, and has one of them.
extern int program_function(int), program_chosen(int), program_value;
int (*const opened_table[2])(int) = {program_function, program_chosen};
// Not to be folded into its caller.
__attribute__((noinline, optnone)) int program_weak(int x) { return -x; }
int opened_call(int x) { return opened_table[x & 1](x) + program_value; }
int opened_weak(int x) { return program_weak(x); }
