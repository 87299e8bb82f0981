// Hidden and protected symbols are shared by the modules of one image.
// gate: B
// extra: hidden_other.c
#include <stdio.h>

__attribute__((visibility("hidden"))) extern int hidden_variable;
__attribute__((visibility("hidden"))) int hidden_function(int);
__attribute__((visibility("protected"))) int protected_function(int);
__attribute__((visibility("hidden"))) int (*hidden_pointer)(int) = hidden_function;
int (*other_address(void))(int);

int main(void) {
  hidden_variable += 2;
  printf("%d %d %d\n", hidden_function(1), protected_function(2), hidden_pointer(3));
  printf("%d\n", other_address() == hidden_pointer);
}
