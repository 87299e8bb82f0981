/* The command line of every kernel: program ITERATIONS SIZE. */
#ifndef KERNEL_H
#define KERNEL_H

#include "steady.h"

/* With FAR, nobody can know what is called: an iteration is a call that others could get between, as
 * in a program that does more than one thing. Else optimisers may take it into `main`. */
#ifdef FAR
static uint64_t (*volatile kernel_work)(long size);
#else
static uint64_t (*kernel_work)(long size);
#endif

/* The size is volatile, or an iteration would be a constant that an optimiser works
 * out once for all. */
static uint64_t kernel_iterate(void *size) { return kernel_work(*(volatile long *)size); }

/* One iteration is `work(size)`, from the same state every time. */
static int kernel(const char *name, int argc, char **argv, uint64_t (*work)(long size)) {
  if (argc != 3) {
    fprintf(stderr, "usage: program ITERATIONS SIZE\n");
    return 2;
  }
  long size = atol(argv[2]);
  kernel_work = work;
  return steady(name, atol(argv[1]), kernel_iterate, &size);
}

/* The bits of a result, for checksums that miss nothing. */
__attribute__((unused)) static uint64_t kernel_bits(double value) {
  union {
    double value;
    uint64_t bits;
  } both = {value};
  return both.bits;
}

#endif
