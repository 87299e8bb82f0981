// An interpreter with computed goto: a static table of block addresses.
#include <stdio.h>

enum { PUSH, ADD, MUL, DUP, DEC, JNZ, OUT, HALT };

__attribute__((noinline)) static long interpret(const int *code) {
  static const void *const labels[] = {&&push, &&add, &&mul, &&dup, &&dec, &&jnz, &&out, &&halt};
  long stack[16], *top = stack, steps = 0;
#define NEXT do { steps++; goto *labels[*code++]; } while (0)
  NEXT;
push: *top++ = *code++; NEXT;
add: top--; top[-1] += *top; NEXT;
mul: top--; top[-1] *= *top; NEXT;
dup: *top = top[-1]; top++; NEXT;
dec: top[-1]--; NEXT;
jnz: if (top[-1]) code += *code; else code++; NEXT;
out: printf("%ld\n", *--top); NEXT;
halt: return steps;
}

int main(void) {
  static const int code[] = {PUSH, 6, PUSH, 7, MUL, OUT, PUSH, 1000, DEC, JNZ, -2, OUT, HALT};
  printf("%ld\n", interpret(code));
  printf("%ld\n", interpret(code));
}
