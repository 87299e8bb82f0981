// Fibers on stacks from malloc that the program switches in assembly of its own, inlined
// into functions: nobody is told of the stacks, and code on them moves meanwhile.
// gate: D
// hazard: stacks
#include <stdio.h>
#include <stdlib.h>

enum { FIBERS = 4, STACK = 32768, ROUNDS = 6 };
struct context { void *sp; };
static struct context home, fiber[FIBERS];
static int current, done, started;
static char log_text[4096], *log_end = log_text;

// All registers are given up: what is needed goes over the stack that is left.
static inline __attribute__((always_inline)) void go(struct context *from, struct context *to) {
  __asm__ volatile(
      "subq $128, %%rsp\n\t"
      "pushq %%rbp\n\t"
      "pushq %%rbx\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%%rdi)\n\t"
      "movq (%%rsi), %%rsp\n\t"
      "ret\n"
      "1:\n\t"
      "popq %%rbx\n\t"
      "popq %%rbp\n\t"
      "addq $128, %%rsp\n\t"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}

__attribute__((noinline)) static void yield(void) {
  if (started) go(&fiber[current], &home);
}

#define DEFINE(n)                                                              \
  __attribute__((noinline)) static int leaf##n(int x) { return x * 3 + n; }    \
  __attribute__((noinline)) static int middle##n(int x) {                      \
    int kept = leaf##n(x);                                                     \
    yield();                                                                   \
    return kept + leaf##n(kept);                                               \
  }                                                                            \
  __attribute__((noinline)) static int other##n(int x) { return x ^ n; }
DEFINE(0) DEFINE(1) DEFINE(2) DEFINE(3)
static int (*const middles[])(int) = {middle0, middle1, middle2, middle3};
static int (*const others[])(int) = {other0, other1, other2, other3};

static void body(void) {
  int me = current;
  for (int i = 0; i < ROUNDS; i++)
    log_end += sprintf(log_end, "%d:%d ", me, middles[me](i + me));
  done++;
  do yield();
  while (started);
}

static void first(struct context *to) {
  char *top = (char *)malloc(STACK) + STACK;
  top -= (unsigned long)top & 15;
  void **sp = (void **)top;
  *--sp = 0;
  *--sp = (void *)body;
  to->sp = sp;
}

// New functions, so that others are compiled and moved while fibers rest.
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
    for (current = 0; current < FIBERS; current++) go(&home, &fiber[current]);
    for (int i = 0; i < 7; i++) sum += works[(round * 7 + i) % 48](round);
  }
  printf("%s\n%d %u\n", log_text, done, sum);
}
