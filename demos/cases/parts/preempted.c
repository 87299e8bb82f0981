// A library with names that a program may define, too.
int preempted_data = 1;
int preempted_initial = 2;
int *preempted_pointer = &preempted_initial;
__attribute__((weak)) void preempted_hook(int);
int preempted_function(int x) { return x + 1; }
__attribute__((visibility("protected"))) int preempted_protected(int x) { return x + 2; }
int (*preempted_table[2])(int) = {preempted_function, preempted_protected};
int preempted_call(int x) {
  if (preempted_hook) preempted_hook(x);
  return preempted_function(x) * 10 + preempted_data;
}
int preempted_by_table(int i, int x) { return preempted_table[i](x); }
int preempted_through_pointer(void) { return *preempted_pointer; }
int preempted_protected_call(int x) { return preempted_protected(x); }
