/* Callers run while their function is replaced; a child of fork compiles what it needs. */
#include "check.h"
#include <pthread.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLERS 3
#define ROUNDS 40

typedef int64_t (*nullary)(void);

static nullary value;
static int stop;
static int64_t least[CALLERS];

static void *call(void *number)
{
    int64_t *mine = number;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        int64_t now = value();
        /* Versions only go up. */
        CHECK(now >= *mine);
        *mine = now;
    }
    return NULL;
}

int main(void)
{
    uruk_jit *jit;
    const uruk_dylib *dylib;
    uruk_function function;
    pthread_t threads[CALLERS];
    pid_t child;
    int index, status = 0;

    FINE(uruk_jit_new(NULL, &jit));
    dylib = uruk_jit_main(jit);
    FINE(uruk_dylib_add_ir(dylib, "m", "define i64 @value() { ret i64 0 }\n"
                                       "define i64 @child() { ret i64 17 }\n"));
    FINE(uruk_dylib_function(dylib, "value", "i64 ()", &function));
    value = (nullary)function;
    for (index = 0; index < CALLERS; ++index) {
        CHECK(pthread_create(&threads[index], NULL, call, &least[index]) == 0);
    }
    for (index = 1; index <= ROUNDS; ++index) {
        char ir[64];
        sprintf(ir, "define i64 @value() { ret i64 %d }", index);
        FINE(uruk_dylib_replace_ir(dylib, "next", ir));
        CHECK(value() == index);
    }
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FINE(uruk_dylib_function(dylib, "child", "i64 ()", &function));
        _exit((int)((nullary)function)());
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (index = 0; index < CALLERS; ++index) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    uruk_jit_free(jit);
    puts("passed");
    return 0;
}
