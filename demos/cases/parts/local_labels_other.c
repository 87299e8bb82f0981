// The other file of local_labels.c: the same labels mean other things here.
int twice(int x);
extern const char words[];
extern int counter;
int first_twice(int x);

__asm__(".text\n"
        "twice:\n  leal 5(%rdi,%rdi), %eax\n  ret\n"
        "only_in_text:\n  leal 4(%rdi), %eax\n  ret\n"
        ".globl exported_there\nexported_there:\n  call twice\n  ret\n"
        ".section .rodata\nwords:\n  .asciz \"words of the second\"\n"
        ".data\n.p2align 2\ncounter:\n  .long 7\n"
        ".text\n");

/* A function where the first file has a label. */
int clash(int x) { return x - 1; }

int in_other(int x) { return twice(x) + first_twice(x) + clash(x); }
const char *words_of_other(void) { return words; }
int counted_in_other(void) { return ++counter; }
int (*twice_of_other(void))(int) { return twice; }

int text_of_other(int x) {
  int result;
  __asm__ volatile("movq %%rsp, %%rbx; subq $128, %%rsp; andq $-16, %%rsp; call only_in_text; movq %%rbx, %%rsp"
                   : "=a"(result), "+D"(x)
                   :
                   : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory");
  return result;
}
