// The program begins in assembly of a module.
// levels: O0 O2
// status: 7
#include <stdio.h>

__attribute__((used)) int first(int count, char **arguments) {
  (void)arguments;
  printf("begun %d\n", count);
  return 7;
}
__asm__(".text\n"
        ".globl main\n"
        ".type main, @function\n"
        "main:\n"
        "  sub $8, %rsp\n"
        "  call first\n"
        "  add $8, %rsp\n"
        "  ret\n"
        ".size main, . - main\n");
