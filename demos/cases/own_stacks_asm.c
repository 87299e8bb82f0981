// Fibers on mapped stacks, switched by a function in module-level assembly that keeps where
// it goes on in the context, as libraries for coroutines do.
// gate: D
// hazard: stacks
#include <stdio.h>
#include <sys/mman.h>

enum { FIBERS = 4, STACK = 65536, ROUNDS = 6 };
struct context { void *ip, *sp, *bp, *bx, *r12, *r13, *r14, *r15; };
static struct context home, fiber[FIBERS];
static int current, done, started;
static char log_text[4096], *log_end = log_text;

void switch_to(struct context *from, struct context *to);
__asm__(".text\n.globl switch_to\n.type switch_to,@function\nswitch_to:\n"
        "leaq 1f(%rip), %rax\n movq %rax, 0(%rdi)\n movq %rsp, 8(%rdi)\n movq %rbp, 16(%rdi)\n"
        "movq %rbx, 24(%rdi)\n movq %r12, 32(%rdi)\n movq %r13, 40(%rdi)\n movq %r14, 48(%rdi)\n"
        "movq %r15, 56(%rdi)\n movq 56(%rsi), %r15\n movq 48(%rsi), %r14\n movq 40(%rsi), %r13\n"
        "movq 32(%rsi), %r12\n movq 24(%rsi), %rbx\n movq 16(%rsi), %rbp\n movq 8(%rsi), %rsp\n"
        "jmpq *0(%rsi)\n1: ret\n.size switch_to,.-switch_to\n");

__attribute__((noinline)) static void yield(void) {
  if (started) switch_to(&fiber[current], &home);
}

#define DEFINE(n)                                                              \
  __attribute__((noinline)) static double leaf##n(double x) { return x * 1.5 + n; } \
  __attribute__((noinline)) static double middle##n(double x) {                \
    double kept = leaf##n(x);                                                  \
    yield();                                                                   \
    return kept + leaf##n(kept);                                               \
  }                                                                            \
  __attribute__((noinline)) static int other##n(int x) { return x ^ n; }
DEFINE(0) DEFINE(1) DEFINE(2) DEFINE(3)
static double (*const middles[])(double) = {middle0, middle1, middle2, middle3};
static int (*const others[])(int) = {other0, other1, other2, other3};

static void body(void) {
  int me = current;
  for (int i = 0; i < ROUNDS; i++)
    log_end += sprintf(log_end, "%d:%g ", me, middles[me](i + me));
  done++;
  do yield();
  while (started);
}

static void first(struct context *to) {
  char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void **sp = (void **)(stack + STACK - 16);
  *--sp = 0;
  to->sp = sp;
  to->ip = (void *)body;
}

#define WORK(n) static int work##n(int x) { return x * n + others[n & 3](x); }
#define WORK8(n) WORK(n##0) WORK(n##1) WORK(n##2) WORK(n##3) WORK(n##4) WORK(n##5) WORK(n##6) WORK(n##7)
WORK8(1) WORK8(2) WORK8(3) WORK8(4) WORK8(5) WORK8(6)
#define NAMES8(n) work##n##0, work##n##1, work##n##2, work##n##3, work##n##4, work##n##5, work##n##6, work##n##7
static int (*const works[])(int) = {NAMES8(1), NAMES8(2), NAMES8(3), NAMES8(4), NAMES8(5), NAMES8(6)};

int main(void) {
  unsigned sum = 0;
  // Compiled here, so that nobody waits for long on a fiber, where a scan would see it.
  for (current = 0; current < FIBERS; current++) body();
  for (int i = 0; i < FIBERS; i++) first(&fiber[i]);
  started = 1;
  for (int round = 0; round < ROUNDS + 1; round++) {
    for (current = 0; current < FIBERS; current++) switch_to(&home, &fiber[current]);
    for (int i = 0; i < 7; i++) sum += works[(round * 7 + i) % 48](round);
  }
  printf("%s\n%d %u\n", log_text, done, sum);
}
