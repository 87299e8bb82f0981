/* A stack machine with a dozen instructions, dispatched by a switch, that runs a
 * sieve and a recursive function of its own: indirect branches and a loop no
 * optimiser sees through. SIZE is how far the sieve goes. */
#include <stdlib.h>

#include "kernel.h"

enum code {
  PUSH,     /* operand: a number */
  LOAD,     /* operand: which local */
  STORE,    /* operand: which local */
  ADD, SUB, MUL, LESS,
  JUMP,     /* operand: where to */
  JUMP_IF_NOT,
  PEEK,     /* index on the stack, replaced by the cell */
  POKE,     /* value, index */
  CALL,     /* operand: where to; one argument, which becomes local 0 */
  RETURN,
  HALT,
};

struct instruction {
  uint8_t code;
  int32_t operand;
};

enum { LOCALS = 4, DEPTH = 64, STACK = 256 };

struct frame {
  const struct instruction *back;
  int64_t locals[LOCALS];
};

struct machine {
  int64_t stack[STACK];
  struct frame frames[DEPTH];
  int64_t *memory;
  int64_t limit;
  uint64_t steps;
};

static int64_t *cell(struct machine *machine, int64_t index) {
  if (index < 0 || index >= machine->limit) abort();
  return &machine->memory[index];
}

int64_t execute(struct machine *machine, const struct instruction *program) {
  const struct instruction *at = program;
  int64_t *top = machine->stack;
  struct frame *frame = machine->frames;
  uint64_t steps = 0;
  for (;;) {
    struct instruction now = *at++;
    steps++;
    switch (now.code) {
      case PUSH: *++top = now.operand; break;
      case LOAD: *++top = frame->locals[now.operand]; break;
      case STORE: frame->locals[now.operand] = *top--; break;
      case ADD: top--, top[0] += top[1]; break;
      case SUB: top--, top[0] -= top[1]; break;
      case MUL: top--, top[0] *= top[1]; break;
      case LESS: top--, top[0] = top[0] < top[1]; break;
      case JUMP: at = program + now.operand; break;
      case JUMP_IF_NOT:
        if (*top-- == 0) at = program + now.operand;
        break;
      case PEEK: *top = *cell(machine, *top); break;
      case POKE: *cell(machine, top[0]) = top[-1], top -= 2; break;
      case CALL:
        if (++frame == machine->frames + DEPTH) abort();
        frame->back = at;
        frame->locals[0] = *top--;
        at = program + now.operand;
        break;
      case RETURN:
        at = frame->back;
        frame--;
        break;
      default: machine->steps += steps; return *top;
    }
  }
}

struct program {
  struct instruction code[128];
  int length;
};

/* Appends an instruction; its place. */
static int emit(struct program *program, enum code code, int operand) {
  program->code[program->length] = (struct instruction){(uint8_t)code, operand};
  return program->length++;
}

/* Lets the jump or call at `from` lead to the next instruction. */
static void lead_here(struct program *program, int from) {
  program->code[from].operand = program->length;
}

/* fib(n), n on the stack; where it begins. */
static int emit_fib(struct program *program) {
  int start = program->length;
  emit(program, LOAD, 0), emit(program, PUSH, 2), emit(program, LESS, 0);
  int large = emit(program, JUMP_IF_NOT, 0);
  emit(program, LOAD, 0), emit(program, RETURN, 0);
  lead_here(program, large);
  for (int less = 1; less <= 2; less++) {
    emit(program, LOAD, 0), emit(program, PUSH, less), emit(program, SUB, 0);
    emit(program, CALL, start);
  }
  emit(program, ADD, 0), emit(program, RETURN, 0);
  return start;
}

/* Counts the primes below local 3 into local 2, then adds fib(14). */
static void emit_main(struct program *program, int fib) {
  enum { NUMBER, MULTIPLE, COUNT, LIMIT };
  emit(program, STORE, LIMIT);
  emit(program, PUSH, 0), emit(program, STORE, COUNT);
  emit(program, PUSH, 2), emit(program, STORE, NUMBER);
  int head = emit(program, LOAD, NUMBER);
  emit(program, LOAD, LIMIT), emit(program, LESS, 0);
  int done = emit(program, JUMP_IF_NOT, 0);
  emit(program, LOAD, NUMBER), emit(program, PEEK, 0);
  int prime = emit(program, JUMP_IF_NOT, 0);
  int composite = emit(program, JUMP, 0);
  lead_here(program, prime);
  emit(program, LOAD, COUNT), emit(program, PUSH, 1), emit(program, ADD, 0);
  emit(program, STORE, COUNT);
  emit(program, LOAD, NUMBER), emit(program, LOAD, NUMBER), emit(program, MUL, 0);
  emit(program, STORE, MULTIPLE);
  int inner = emit(program, LOAD, MULTIPLE);
  emit(program, LOAD, LIMIT), emit(program, LESS, 0);
  int next = emit(program, JUMP_IF_NOT, 0);
  emit(program, PUSH, 1), emit(program, LOAD, MULTIPLE), emit(program, POKE, 0);
  emit(program, LOAD, MULTIPLE), emit(program, LOAD, NUMBER), emit(program, ADD, 0);
  emit(program, STORE, MULTIPLE), emit(program, JUMP, inner);
  lead_here(program, composite), lead_here(program, next);
  emit(program, LOAD, NUMBER), emit(program, PUSH, 1), emit(program, ADD, 0);
  emit(program, STORE, NUMBER), emit(program, JUMP, head);
  lead_here(program, done);
  emit(program, LOAD, COUNT), emit(program, PUSH, 14), emit(program, CALL, fib);
  emit(program, ADD, 0), emit(program, HALT, 0);
}

static uint64_t work(long size) {
  static struct machine machine;
  struct program program = {.length = 0};
  emit(&program, PUSH, (int)size);
  int start = emit(&program, JUMP, 0);
  int fib = emit_fib(&program);
  lead_here(&program, start);
  emit_main(&program, fib);
  machine.memory = calloc((size_t)size, sizeof *machine.memory);
  if (machine.memory == NULL) return 0;
  machine.limit = size;
  machine.steps = 0;
  uint64_t sum = (uint64_t)execute(&machine, program.code);
  free(machine.memory);
  return sum << 32 ^ machine.steps;
}

int main(int argc, char **argv) { return kernel("interpreter", argc, argv, work); }
