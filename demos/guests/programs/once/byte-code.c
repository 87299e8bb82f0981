/* A stack machine: one loop around one switch, with its program counter and its top of stack
 * in local variables. Its program counts the steps of n -> n / 2 or 3 n + 1 down to 1. */
#include "once.h"

enum { LIMIT = BY_SIZE(180000, 10000) };
enum code { PUSH, LOAD, STORE, ADD, MUL, HALF, ODD, LESS, SAME, JUMP, IF, END };
enum variable { N, M, STEPS, VARIABLES };
enum place { NEXT_N = 4, NEXT_STEP = 8, ODD_STEP = 34, DONE = 46 };

/* The number of a line's first cell stands behind it. */
static const int program[] = {
    PUSH, 1, STORE, N,                                        /* 0 */
    LOAD, N, STORE, M,                                        /* NEXT_N */
    LOAD, M, PUSH, 1, SAME, IF, DONE,                         /* NEXT_STEP */
    LOAD, STEPS, PUSH, 1, ADD, STORE, STEPS,                  /* 15 */
    LOAD, M, ODD, IF, ODD_STEP,                               /* 22 */
    LOAD, M, HALF, STORE, M, JUMP, NEXT_STEP,                 /* 27 */
    LOAD, M, PUSH, 3, MUL, PUSH, 1, ADD, STORE, M,            /* ODD_STEP */
    JUMP, NEXT_STEP,                                          /* 44 */
    LOAD, N, PUSH, 1, ADD, STORE, N,                          /* DONE */
    LOAD, N, PUSH, LIMIT, LESS, IF, NEXT_N, END,              /* 53 */
};

KERNEL long run(const int *code) {
  long stack[16], variables[VARIABLES] = {0}, *top = stack, cells = 0;
  const int *at = code;
  for (;;) {
    cells++;
    switch ((enum code) * at++) {
      case PUSH: *top++ = *at++; break;
      case LOAD: *top++ = variables[*at++]; break;
      case STORE: variables[*at++] = *--top; break;
      case ADD: top--; top[-1] += *top; break;
      case MUL: top--; top[-1] *= *top; break;
      case HALF: top[-1] /= 2; break;
      case ODD: top[-1] &= 1; break;
      case LESS: top--; top[-1] = top[-1] < *top; break;
      case SAME: top--; top[-1] = top[-1] == *top; break;
      case JUMP: at = code + *at; break;
      case IF: at = *--top ? code + *at : at + 1; break;
      case END: return variables[STEPS] * 7 + cells;
    }
  }
}

int main(void) {
  note((uint64_t)run(program));
  return report("byte-code");
}
