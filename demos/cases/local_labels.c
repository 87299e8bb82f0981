// Labels of assembly at file scope that it does not export: functions of the same file
// call them and read what is there, another file's labels of the same names are its own.
// extra: local_labels_other.c
#include <stdio.h>

int twice(int x);
int through_a_second_block(int x);
extern const char words[];
extern int counter;
extern __thread int per_thread;
extern char constant_label;
int exported_there(int x);
int clash(int x);

__asm__(".text\n"
        "twice:\n  leal (%rdi,%rdi), %eax\n  ret\n"
        "clash:\n  leal 1000(%rdi), %eax\n  ret\n"
        ".section .rodata\nwords:\n  .asciz \"words of the first\"\n"
        ".data\n.p2align 2\ncounter:\n  .long 40\n"
        ".section .tdata,\"awT\",@progbits\n.p2align 2\nper_thread:\n  .long 70\n"
        ".set constant_label, 4242\n"
        ".text\n");
__asm__(".text\nthrough_a_second_block:\n  call twice\n  incl %eax\n  ret\n");

/* Named by an instruction of assembly only. */
__asm__(".text\nonly_in_text:\n  leal 3(%rdi), %eax\n  ret\n");

static int (*in_data)(int) = twice;
static const char *const text_in_data = words;

__attribute__((noinline)) static int by_text(int x) {
  int result;
  __asm__ volatile("movq %%rsp, %%rbx; subq $128, %%rsp; andq $-16, %%rsp; call only_in_text; movq %%rbx, %%rsp;"
                   " addl counter(%%rip), %%eax"
                   : "=a"(result), "+D"(x)
                   :
                   : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory");
  return result;
}

int in_other(int x);
const char *words_of_other(void);
int counted_in_other(void);
int text_of_other(int x);
int (*twice_of_other(void))(int);

/* Small enough to be inlined into the other file. */
int first_twice(int x) { return twice(x) + counter; }

int main(void) {
  unsigned sum = 0;
  for (int i = 0; i < 3000; i++) {
    sum += (unsigned)(twice(i) + in_other(i) + first_twice(i) + through_a_second_block(i));
    sum += (unsigned)(by_text(i) + text_of_other(i));
  }
  counter++;
  per_thread += 7;
  printf("%u %d %d\n", sum, counter, counted_in_other());
  printf("%s, %s, %s\n", words, words_of_other(), text_in_data);
  printf("%d %d %d\n", in_data == twice, in_data(21), twice == twice_of_other());
  printf("%d %ld %d\n", per_thread, (long)&constant_label, clash(1));
  printf("%d %d\n", exported_there(5), twice_of_other()(5));
}
