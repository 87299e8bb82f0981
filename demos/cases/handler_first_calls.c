// A handler's first calls, and forks, while the thread it interrupted is in the dynamic
// loader's functions or in the allocator: nothing that answers either may wait for it.
// link: -rdynamic -ldl
// timeout: 240
// hazard: handlers
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define F(n) \
    int fresh_##n(int x) { return x + 0x##n; }
#define F16(n) \
    F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) \
    F(n##8) F(n##9) F(n##a) F(n##b) F(n##c) F(n##d) F(n##e) F(n##f)
F16(0) F16(1) F16(2) F16(3) F16(4) F16(5) F16(6) F16(7) F16(8) F16(9) F16(a) F16(b)

#define N(n) fresh_##n,
#define N16(n) \
    N(n##0) N(n##1) N(n##2) N(n##3) N(n##4) N(n##5) N(n##6) N(n##7) \
    N(n##8) N(n##9) N(n##a) N(n##b) N(n##c) N(n##d) N(n##e) N(n##f)
static int (*const fresh[])(int) = {
    N16(0) N16(1) N16(2) N16(3) N16(4) N16(5) N16(6) N16(7) N16(8) N16(9) N16(a) N16(b)};
enum { COUNT = sizeof fresh / sizeof *fresh };

/* How many were called, and up to which one the handler may go. */
volatile sig_atomic_t next;
static volatile sig_atomic_t limit, forks, wrong;

static void call_next(int forking) {
    if (next >= limit) return;
    int n = next;
    if (forking && n % 8 == 7) {
        /* The child calls one that has no code yet, too. */
        pid_t child = fork();
        if (child == 0) _exit(fresh[n](1) == n + 1 ? 0 : 1);
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) wrong++;
        forks++;
    }
    if (fresh[n](1) != n + 1) wrong++;
    next = n + 1;
}

static void plain(int signal) {
    (void)signal;
    call_next(0);
}

static void forking(int signal) {
    (void)signal;
    call_next(1);
}

static void every(long microseconds, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int count(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size;
    ++*(int *)data;
    return 0;
}

static void loader(void) {
    Dl_info info;
    for (int i = 0; i < 50; i++) {
        if (dlsym(RTLD_DEFAULT, "fresh_10") != (void *)fresh_10) wrong++;
        if (dlsym(RTLD_DEFAULT, "next") != (void *)&next) wrong++;
        if (!dladdr((void *)fresh_11, &info)) wrong++;
    }
    if (!dladdr((void *)loader, &info) || !dladdr((void *)strlen, &info)) wrong++;
    if (dlsym(RTLD_DEFAULT, "strlen") == NULL) wrong++;
}

static void listing(void) {
    void *frames[16];
    int objects = 0;
    dl_iterate_phdr(count, &objects);
    if (objects == 0 || backtrace(frames, 16) == 0) wrong++;
    loader();
}

static void allocator(void) {
    void *a = malloc(100), *b = malloc(5000), *c = malloc(200000);
    b = realloc(b, 90000);
    free(a);
    free(c);
    free(b);
}

static void until(int to, void (*handler)(int), void (*work)(void)) {
    limit = to;
    every(300, handler);
    while (next < limit) work();
    every(0, SIG_IGN);
}

int main(void) {
    void *frames[4];
    backtrace(frames, 4);
    loader(), listing(), allocator();
    until(COUNT / 4, plain, loader);
    printf("in the loader's functions: %d\n", (int)next);
    until(COUNT / 2, forking, loader);
    printf("with %d forks: %d\n", (int)forks, (int)next);
    until(COUNT * 3 / 4, plain, listing);
    printf("in lists: %d\n", (int)next);
    until(COUNT, plain, allocator);
    printf("in the allocator: %d, %d wrong\n", (int)next, (int)wrong);
    return 0;
}
