/* Loops that are entered once, of each shape that may or may not be outlined. C and C++.

   Each function prints the results of its loops; `main` calls it once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So that loops are not computed by the compiler, and last for several calls of a new function. */
static volatile unsigned many = 30000;
static unsigned shared[64];

#define OUTLINE static __attribute__((noinline)) void

static __attribute__((noinline)) unsigned mixed(unsigned sum, unsigned with) {
    sum = sum * 1664525u + with;
    return sum ^ sum >> 15;
}

OUTLINE several_exits(void) {
    unsigned sum = 1, at;
    for (at = 0; at < many; at++) {
        sum = sum * 1664525u + at;
        if (sum % 100003 == 7)
            goto found;
        if (sum % 100003 == 9)
            break;
        if (sum % 100003 == 11)
            continue;
        sum ^= sum >> 13;
    }
    printf("several exits: break at %u, %u\n", at, sum);
    return;
found:
    printf("several exits: found at %u, %u\n", at, sum);
}

static __attribute__((noinline)) int early_return(void) {
    double reals = 0;
    for (unsigned at = 0;; at++) {
        reals += 1.0 / (at + 1);
        if (at == many)
            return (int)(reals * 1000);
    }
}

/* Locals in memory, which a loop and the code after it share. */
OUTLINE arrays(void) {
    unsigned local[16] = {0}, *inside = local, last = 0;
    for (unsigned at = 0; at < many; at++) {
        unsigned scratch[8];
        for (unsigned i = 0; i < 8; i++)
            scratch[i] = at * i;
        inside = &local[scratch[at % 8] % 16];
        *inside += mixed(at, last);
        last = *inside;
    }
    unsigned sum = 0;
    for (unsigned i = 0; i < 16; i++)
        sum = sum * 31 + local[i];
    printf("arrays: %u at %d\n", sum, (int)(inside - local));
}

OUTLINE nested(void) {
    unsigned table[50][50];
    memset(table, 1, sizeof table);
    for (unsigned pass = 0; pass < many / 1000; pass++)
        for (unsigned i = 0; i < 50; i++) {
            if (table[i][pass % 50] % 97 == 5)
                break;
            for (unsigned j = 0; j < 50; j++)
                table[i][j] = table[j][i] * 5 + pass;
        }
    printf("nested: %u\n", table[3][7] ^ table[49][49]);
}

OUTLINE few_passes(void) {
    unsigned long long sum = 0;
    unsigned count = many;
    for (int pass = 0; pass < 3; pass++)
        for (unsigned at = 0; at < count; at++)
            sum += shared[at % 64] ^ at * pass;
    printf("few passes: %llu\n", sum);
}

/* Runs twice if the loop is outlined and `setjmp` is not seen. */
OUTLINE jumps(void) {
    jmp_buf to;
    volatile unsigned back = 0;
    unsigned volatile at = 0;
    for (; at < many; at++) {
        if (at % 10000 == 0 && setjmp(to))
            back++;
        if (at % 10000 == 5000 && back % 2 == 0)
            longjmp(to, 1);
    }
    printf("jumps: %u\n", back);
}

static __attribute__((noinline)) unsigned any_number(unsigned count, ...) {
    va_list rest;
    va_start(rest, count);
    unsigned sum = 0;
    for (unsigned at = 0; at < count; at++)
        sum = sum * 3 + va_arg(rest, unsigned);
    va_end(rest);
    return sum;
}

OUTLINE variable_size(void) {
    unsigned count = many % 100 + 5, sum = 0;
    unsigned *outside = (unsigned *)__builtin_alloca(count * sizeof(unsigned));
    for (unsigned at = 0; at < count; at++)
        outside[at] = at;
    for (unsigned at = 0; at < many; at++) {
        unsigned size = at % 7 + 1;
        unsigned *inside = (unsigned *)__builtin_alloca_with_align(size, 32);
        inside[0] = at;
        sum += inside[0] * outside[at % count];
        if (at > 2000)
            break;
    }
    printf("variable size: %u\n", sum);
}

OUTLINE computed_goto(void) {
    static const void *const ways[] = {&&add, &&twice, &&end};
    unsigned sum = 1, at = 0;
    for (;;) {
        goto *ways[at < many ? at % 2 : 2];
    add:
        sum += at++;
        continue;
    twice:
        sum *= 2 + at++;
        continue;
    end:
        break;
    }
    printf("computed goto: %u\n", sum);
}

OUTLINE asm_goto(void) {
    unsigned sum = 0;
    for (unsigned at = 0; at < many; at++) {
        __asm__ goto("testl $1, %0; jnz %l1" : : "r"(at) : "cc" : odd);
        sum += at;
        continue;
    odd:
        sum ^= at;
    }
    printf("asm goto: %u\n", sum);
}

struct pair {
    double real;
    unsigned number;
};

OUTLINE structures(void) {
    struct pair all = {1, 2};
    bool is_odd = false;
    short small = 7;
    long double wide = 1;
    for (unsigned at = 0; at < many; at++) {
        struct pair next = {all.real / 2 + at, all.number ^ at};
        all = next;
        is_odd = !is_odd;
        small = (short)(small * 3 + at);
        wide = wide / 3 + is_odd;
    }
    printf("structures: %.10g %u %d %d %.10Lg\n", all.real, all.number, is_odd, small, wide);
}

static void add_to(unsigned *sum, unsigned at) { *sum = *sum * 5 + at; }

/* The address of a variable that only the loop uses goes from one call of the loop to the next. */
OUTLINE carried(void) {
    unsigned own, other = 0, sum = 0, *to = &other;
    for (unsigned at = 0; at < many; at++) {
        own = at;
        *to += 1;
        sum += own;
        to = &own;
    }
    printf("carried: %u %u\n", sum, other);
}

static __attribute__((noinline)) unsigned fill(char *large, unsigned size, int with) {
    memset(large, with, size);
    return (unsigned)large[shared[3] % size];
}

/* The parts need more than the stack if they share no memory, as at -O0. */
#ifdef __OPTIMIZE__
#define PART_SIZE (1 << 20)
#else
#define PART_SIZE (1 << 12)
#endif
#define PART { char large[PART_SIZE]; sum += fill(large, sizeof large, (int)(sum & 7)); }
OUTLINE shares_stack(void) {
    unsigned sum = 1;
    PART PART PART PART PART PART PART PART PART PART
    for (unsigned at = 0; at < many; at++)
        sum = mixed(sum, at);
    printf("shares the stack: %u\n", sum);
}

OUTLINE shares_inside(void) {
    unsigned sum = 1;
    for (unsigned at = 0; at < 20 + many % 2; at++) {
        PART PART PART PART PART PART PART PART PART PART
    }
    printf("shares inside: %u\n", sum);
}

/* Other numbers make other functions of their loops, though the code of the loops is the same text. */
#ifndef PAD
#define PAD 2
#endif
struct padded { unsigned first, pad[PAD], last; };

OUTLINE laid_out(void) {
    struct padded one = {1, {0}, 2}, *volatile place = &one, *to = place;
    for (unsigned at = 0; at < many; at++)
        to->last = mixed(to->last, to->first);
    printf("laid out: %u\n", one.last);
}

OUTLINE known_alone(void) {
    unsigned local[16] = {0};
#if PAD > 2
    unsigned *volatile known = local;
    (void)known;
#endif
    for (unsigned at = 0; at < many; at++)
        shared[at % 64] += local[at % 16] += at;
    printf("known alone: %u\n", local[3] ^ shared[9]);
}

/* In a register once `add_to` is inlined. */
OUTLINE passed_address(void) {
    unsigned sum = 0;
    for (unsigned at = 0; at < many; at++)
        add_to(&sum, at);
    printf("passed address: %u\n", sum);
}

static void *thread(void *argument) {
    unsigned *sum = (unsigned *)argument;
    for (unsigned at = 0; at < many; at++)
        *sum = mixed(*sum, at);
    return argument;
}

static void end(void) {
    puts("end");
}

/* Never returns, and its loop ends the program. */
static __attribute__((noinline)) void serve(void) {
    unsigned at = 0;
    for (;;) {
        shared[at % 64] += at;
        if (++at > many) {
            printf("served: %u\n", shared[5]);
            exit(3);
        }
    }
}

#ifdef __cplusplus
#include <string>
#include <vector>

struct Noted {
    unsigned &sum;
    ~Noted() { sum++; }
};

__attribute__((noinline)) static void throwing(unsigned at) {
    if (at % 7000 == 6999)
        throw at;
}

/* The frame of the loop's function is unwound. */
OUTLINE thrown_out() {
    unsigned sum = 0, last = 0;
    for (unsigned pass = 0; pass < 3; pass++) {
        Noted noted{sum};
        try {
            for (unsigned at = 0; at < many; at++) {
                shared[1] = at;
                throwing(at + pass);
            }
        } catch (unsigned at) {
            last += at + shared[1];
        }
    }
    printf("thrown: %u %u\n", sum, last);
}

OUTLINE caught_inside() {
    unsigned sum = 0;
    std::vector<std::string> all;
    for (unsigned at = 0; at < many; at++) {
        try {
            throwing(at);
            if (at % 5000 == 0)
                all.push_back(std::to_string(at));
        } catch (unsigned thrown) {
            sum += thrown;
        }
    }
    printf("caught: %u", sum);
    for (const std::string &it : all)
        printf(" %s", it.c_str());
    puts("");
}

/* No handler: the exception passes through the outlined loop. */
__attribute__((noinline)) static void passes_through() {
    for (unsigned at = 0; at < many; at++) {
        shared[2] ^= at;
        throwing(at);
    }
}

static void exceptions() {
    thrown_out();
    caught_inside();
    try {
        passes_through();
    } catch (unsigned at) {
        printf("through: %u %u\n", at, shared[2]);
    }
}
#else
static void exceptions(void) {}
#endif

int main(int count, char **words) {
    many = count > 1 ? (unsigned)atoi(words[1]) : many;
    for (unsigned at = 0; at < 64; at++)
        shared[at] = at * at;
    several_exits();
    printf("early return: %d\n", early_return());
    arrays();
    nested();
    few_passes();
    jumps();
    printf("any number: %u\n", any_number(5, 1, 2, 3, 4, 5));
    variable_size();
    computed_goto();
    asm_goto();
    structures();
    passed_address();
    carried();
    shares_stack();
    shares_inside();
    laid_out();
    known_alone();
    exceptions();
    unsigned sum = 1;
    pthread_t id;
    if (pthread_create(&id, NULL, thread, &sum) == 0)
        pthread_join(id, NULL);
    unsigned all = sum, at = 0;
    do {
        all = mixed(all, at);
        if (all == 1)
            return 4;
    } while (++at < many);
    printf("thread and main: %u %u\n", sum, all);
    atexit(end);
    serve();
}
