// A program that answers lines while a call of `work` is not over: it holds the version of `helper` from before
// and after each line, which must be the same in one call whatever is exchanged.
//
// COROUTINE: the call is suspended on a stack of its own while the program waits for a line.
// Else: it waits for the line itself, in a part of the function that may lie elsewhere (see SPLIT).
// MERGED: `same` and `other` have one body.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 1
#endif

static char line[256];
static volatile int one = 1, calls;

__attribute__((noinline)) int helper(void) {
    calls++;
    return VERSION * one;
}

#ifdef COROUTINE
static ucontext_t outside, inside;
#endif

static int next_line(void) {
#ifdef COROUTINE
    return swapcontext(&inside, &outside) == 0;
#else
    return fgets(line, sizeof line, stdin) != NULL;
#endif
}

__attribute__((noinline)) int work(void) {
    int before = helper();
    calls += VERSION;
    // Rarely true.
    if (calls < 0)
        abort();
    if (!next_line())
        exit(0);
    // A fork, while others may wait for this process.
    if (strcmp(line, "fork\n") == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    int after = helper();
    calls -= VERSION;
    printf("%d %d\n", before, after);
    return fflush(stdout);
}

#ifdef MERGED
__attribute__((noinline)) int same(int k) {
    calls += k;
    calls += helper();
    return calls + 3;
}
__attribute__((noinline)) int other(int k) {
#if VERSION == 2
    calls -= 7;
#endif
    calls += k;
    calls += helper();
    return calls + 3;
}
#endif

static void forever(void) {
    for (;;)
        work();
}

int main(void) {
    puts("ready");
    fflush(stdout);
#ifdef MERGED
    calls += same(1) + other(2);
#endif
#ifdef COROUTINE
    size_t size = 256 << 10;
    getcontext(&inside);
    inside.uc_stack.ss_sp = malloc(size);
    inside.uc_stack.ss_size = size;
    inside.uc_link = &outside;
    makecontext(&inside, forever, 0);
    do
        swapcontext(&outside, &inside);
    while (fgets(line, sizeof line, stdin));
#else
    forever();
#endif
    return 0;
}
