// Inline assembly that names symbols: an internal function by an operand, a global one
// in its text, and a variable.
// gate: D
#include <stdio.h>

__attribute__((noinline, used)) static int internal_target(int x) { return x * 11; }
__attribute__((noinline, used)) int named_in_text(int x) { return x + 5; }
__attribute__((used)) int variable_in_text = 70;

#define CLOBBERS "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory"

__attribute__((noinline)) static int by_operand(int x) {
  int result;
  __asm__ volatile("movq %%rsp, %%rbx; subq $128, %%rsp; andq $-16, %%rsp; call %P2; movq %%rbx, %%rsp"
                   : "=a"(result), "+D"(x)
                   : "i"(internal_target)
                   : "rbx", CLOBBERS);
  return result;
}

__attribute__((noinline)) static int by_text(int x) {
  int result;
  __asm__ volatile("movq %%rsp, %%rbx; subq $128, %%rsp; andq $-16, %%rsp; call named_in_text@PLT;"
                   " movq %%rbx, %%rsp; addl variable_in_text(%%rip), %%eax"
                   : "=a"(result), "+D"(x)
                   :
                   : "rbx", CLOBBERS);
  return result;
}

int main(void) {
  printf("%d\n", by_operand(3));
  printf("%d\n", by_text(10));
  variable_in_text = 80;
  printf("%d\n", by_text(10));
}
