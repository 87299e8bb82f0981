// Assembly at file scope: a function, data, an alias, and a call back into C.
// gate: B
#include <stdio.h>

int asm_add(int a, int b);
extern const char asm_text[];
extern int asm_counter;
int asm_calls_back(int x);

__attribute__((used)) int from_asm(int x) { return x * 2 + asm_counter; }

__asm__(
    ".text\n.globl asm_add\n.type asm_add,@function\n"
    "asm_add:\n  leal (%rdi,%rsi), %eax\n  ret\n.size asm_add, .-asm_add\n"
    ".globl asm_calls_back\n.type asm_calls_back,@function\n"
    "asm_calls_back:\n  subq $8, %rsp\n  call from_asm@PLT\n  addq $8, %rsp\n  incl %eax\n  ret\n"
    ".size asm_calls_back, .-asm_calls_back\n"
    ".section .rodata\n.globl asm_text\n.type asm_text,@object\n"
    "asm_text:\n  .asciz \"text from asm\"\n.size asm_text, .-asm_text\n"
    ".data\n.globl asm_counter\n.type asm_counter,@object\n.p2align 2\n"
    "asm_counter:\n  .long 40\n.size asm_counter, 4\n"
    ".text\n");

int main(void) {
  asm_counter++;
  printf("%d %s %d\n", asm_add(40, 2), asm_text, asm_calls_back(10));
}
