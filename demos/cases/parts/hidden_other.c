// The definitions of hidden.c.
__attribute__((visibility("hidden"))) int hidden_variable = 40;
__attribute__((visibility("hidden"))) int hidden_function(int x) { return x + hidden_variable; }
__attribute__((visibility("protected"))) int protected_function(int x) { return x * 2; }
int (*other_address(void))(int) { return hidden_function; }
