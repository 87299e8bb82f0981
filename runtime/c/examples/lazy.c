/* Code that is compiled lazily, replaced while it is there, and removed.
 *
 *     cc lazy.c $(pkg-config --cflags --libs uruk) -o lazy && ./lazy
 */
#include <stdio.h>
#include <stdlib.h>
#include <uruk.h>

/* Ends the program if something went wrong. */
static void check(uruk_error *error)
{
    if (error != NULL) {
        fprintf(stderr, "error: %s\n", uruk_error_text(error));
        uruk_error_free(error);
        exit(1);
    }
}

/* What JIT'd code may call. */
static void say(int64_t number)
{
    printf("say %ld\n", (long)number);
}

static const char *const program =
    "declare void @say(i64)\n"
    "define i64 @price(i64 %n) { %p = mul i64 %n, 3 ret i64 %p }\n"
    "define void @show(i64 %n) {\n"
    "  %p = call i64 @price(i64 %n)\n"
    "  call void @say(i64 %p)\n"
    "  ret void\n"
    "}\n";

int main(void)
{
    uruk_jit *jit;
    const uruk_dylib *dylib;
    uruk_tracker *extra;
    uruk_function function;
    uruk_stats stats;
    uruk_error *error;

    check(uruk_jit_new(NULL, &jit));
    dylib = uruk_jit_main(jit);
    check(uruk_dylib_define_function(dylib, "say", "void (i64)", (uruk_function)say));
    check(uruk_dylib_add_ir(dylib, "program", program));

    /* Compiled by its first call. Its type is compared with the IR's here. */
    check(uruk_dylib_function(dylib, "show", "void (i64)", &function));
    ((void (*)(int64_t))function)(14);

    /* All callers reach the new body, at the same address. */
    check(uruk_dylib_replace_ir(dylib, "sale",
                                "define i64 @price(i64 %n) { %p = mul i64 %n, 2 ret i64 %p }"));
    ((void (*)(int64_t))function)(14);

    /* What was added under a tracker is removed with it. */
    check(uruk_dylib_create_tracker(dylib, &extra));
    check(uruk_tracker_add_ir(extra, "extra", "define i64 @one() { ret i64 1 }"));
    check(uruk_dylib_function(dylib, "one", "i64 ()", &function));
    printf("one %ld\n", (long)((int64_t (*)(void))function)());
    check(uruk_tracker_remove(extra));
    uruk_tracker_free(extra);

    error = uruk_dylib_function(dylib, "one", NULL, &function);
    printf("removed: %s\n", uruk_error_text(error));
    uruk_error_free(error);

    check(uruk_jit_stats(jit, &stats, sizeof stats));
    printf("%lu functions, %lu compiled\n", (unsigned long)stats.functions,
           (unsigned long)stats.compiled);
    uruk_jit_free(jit);
    return 0;
}
