/* A hot loop that is entered once, by a function that nothing calls again. It answers each line of
   its input.

   -DIN_MAIN: the loop is one of `main`. -DSHIFT=N: another version of a function that is inlined there. */
#include <poll.h>
#include <stdio.h>

static volatile unsigned seed = 1;

static int answered(void) {
    struct pollfd input = {0, POLLIN, 0};
    char line[64];
    if (poll(&input, 1, 0) <= 0)
        return 1;
    if (!fgets(line, sizeof line, stdin))
        return 0;
    fputs(line, stdout);
    fflush(stdout);
    return 1;
}

#ifndef SHIFT
#define SHIFT 15
#endif

static unsigned mix(unsigned sum) { return sum ^ sum >> SHIFT; }

#define LOOP                                         \
    for (unsigned pass = 0, sum = seed;; pass++) {   \
        sum = sum * 1664525 + pass;                  \
        sum = mix(sum);                              \
        if (pass % (1 << 22) == 0) {                 \
            seed = sum;                              \
            if (!answered())                         \
                return 0;                            \
        }                                            \
    }

__attribute__((noinline)) int serve(void) {
    LOOP
}

int main(void) {
    puts("ready");
    fflush(stdout);
#ifdef IN_MAIN
    LOOP
#else
    return serve();
#endif
}
