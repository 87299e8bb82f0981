// A program of many hot functions that forks again and again: background compiles are
// interrupted wherever they are, also in the middle of code generation.
// modes: tiered
// repeat: 2
// timeout: 60
// hazard: fork

#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 60
#define CODE 4096

static uint8_t code[CODE];

#define STEP(f, n) \
    case n: \
        a = a * (2 * (f) + (n) + 3) ^ (b >> ((n) % 7 + 1)); \
        b += a & ((n) + 1) ? a : b + (f); \
        break;

#define FUNCTION(f) \
    __attribute__((noinline)) static uint64_t hot_##f(uint64_t a, uint64_t b) { \
        for (int i = 0; i < CODE; i++) \
            switch (code[i]) { \
                STEP(f, 0) STEP(f, 1) STEP(f, 2) STEP(f, 3) STEP(f, 4) STEP(f, 5) \
                STEP(f, 6) STEP(f, 7) STEP(f, 8) STEP(f, 9) STEP(f, 10) STEP(f, 11) \
                STEP(f, 12) STEP(f, 13) STEP(f, 14) STEP(f, 15) STEP(f, 16) STEP(f, 17) \
                STEP(f, 18) STEP(f, 19) STEP(f, 20) STEP(f, 21) STEP(f, 22) \
            } \
        return a + b; \
    }

FUNCTION(0) FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5)
FUNCTION(6) FUNCTION(7) FUNCTION(8) FUNCTION(9) FUNCTION(10) FUNCTION(11)
FUNCTION(12) FUNCTION(13) FUNCTION(14) FUNCTION(15) FUNCTION(16) FUNCTION(17)
FUNCTION(18) FUNCTION(19) FUNCTION(20) FUNCTION(21) FUNCTION(22) FUNCTION(23)

static uint64_t (*const all[])(uint64_t, uint64_t) = {
    hot_0, hot_1, hot_2, hot_3, hot_4, hot_5, hot_6, hot_7,
    hot_8, hot_9, hot_10, hot_11, hot_12, hot_13, hot_14, hot_15,
    hot_16, hot_17, hot_18, hot_19, hot_20, hot_21, hot_22, hot_23};

#define FUNCTIONS (int)(sizeof all / sizeof *all)

static uint64_t round_of(uint64_t x) {
    for (int times = 0; times < 32; times++)
        for (int i = 0; i < FUNCTIONS; i++)
            x = all[i](x, x >> 3);
    return x;
}

int main(void) {
    for (int i = 0; i < CODE; i++)
        code[i] = (uint8_t)((i * 7919 >> 3) % 23);
    uint64_t x = 1;
    for (int round = 0; round < ROUNDS; round++) {
        x = round_of(x);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit((int)(all[round % FUNCTIONS](x, 5) & 63));
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
            printf("round %d: %x\n", round, status);
            return 1;
        }
        printf("%d %llu\n", WEXITSTATUS(status), (unsigned long long)x);
    }
    return 0;
}
