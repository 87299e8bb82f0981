// Inline assembly with operands, clobbers and jump targets.
#include <stdio.h>

__attribute__((noinline)) static int zero(int x) {
  __asm__ goto("testl %0, %0; jz %l[is_zero]" : : "r"(x) : "cc" : is_zero);
  return 0;
is_zero:
  return 1;
}

__attribute__((noinline)) static unsigned long long rotate(unsigned long long x, unsigned char n) {
  __asm__("rolq %%cl, %0" : "+r"(x) : "c"(n) : "cc");
  return x;
}

__attribute__((noinline)) static int call_from_asm(int x) {
  /* The callee is named in the text only; it must not be lost. */
  int result;
  __asm__ volatile("movl %1, %%edi; subq $128, %%rsp; call *%2; addq $128, %%rsp; movl %%eax, %0"
                   : "=r"(result)
                   : "r"(x), "r"(zero)
                   : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
  return result;
}

int main(void) {
  unsigned a, b, c, d;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
  printf("%d %d %d\n", zero(0), zero(1), a > 0);
  printf("%llx\n", rotate(0x123456789abcdef0ull, 12));
  printf("%d\n", call_from_asm(0));
}
