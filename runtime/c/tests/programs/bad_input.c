/* Whatever is passed: an error value, and the session goes on. */
#include "check.h"

struct newer {
    uruk_settings known;
    int64_t unknown;
};

static void null_pointers(void)
{
    uruk_jit *jit = NULL;
    uint64_t address;
    int number;

    FAILS(uruk_jit_new(NULL, NULL), URUK_ERROR_ARGUMENT, "jit: a null pointer");
    FAILS(uruk_dylib_add_ir(NULL, "m", ""), URUK_ERROR_ARGUMENT, "dylib: a null pointer");
    FAILS(uruk_dylib_lookup(NULL, "f", &address), URUK_ERROR_ARGUMENT, "dylib");
    FAILS(uruk_dylib_tier(NULL, "f", &number), URUK_ERROR_ARGUMENT, "dylib");
    FAILS(uruk_jit_initialize(NULL), URUK_ERROR_ARGUMENT, "jit");
    FAILS(uruk_tracker_remove(NULL), URUK_ERROR_ARGUMENT, "tracker");
    uruk_settings_init(NULL, sizeof(uruk_settings));
    CHECK(uruk_jit_main(NULL) == NULL);
    CHECK(uruk_error_code(NULL) == 0);
    CHECK(uruk_error_name(NULL, 0) == NULL);
    CHECK(uruk_names_count(NULL) == 0);
    uruk_jit_free(jit);
    uruk_dylib_free(NULL);
    uruk_tracker_free(NULL);
    uruk_error_free(NULL);
    uruk_names_free(NULL);
    uruk_string_free(NULL);
    uruk_replaced_free(NULL);
    uruk_responsibility_free(NULL);
    uruk_reoptimize_request_free(NULL);
    uruk_generator_free(NULL);
    uruk_stack_free(NULL);
    uruk_program_free(NULL);
    CHECK(uruk_generator_remove(NULL) == 0);
    CHECK(uruk_jit_first_calls(NULL) == NULL);
}

static void settings_of_other_versions(void)
{
    uruk_jit *jit;
    uruk_settings settings;
    struct newer newer;

    /* An older header: a struct of two fields. */
    memset(&settings, 0xff, sizeof settings);
    settings.size = 2 * sizeof(size_t);
    settings.jobs = 1;
    FINE(uruk_jit_new(&settings, &jit));
    uruk_jit_free(jit);

    /* A newer one, whose further fields are as by default, or not. */
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    FINE(uruk_jit_new(&newer.known, &jit));
    uruk_jit_free(jit);
    newer.unknown = 1;
    FAILS(uruk_jit_new(&newer.known, &jit), URUK_ERROR_ARGUMENT, "does not know");
    CHECK(jit != NULL);

    memset(&settings, 0, sizeof settings);
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "size");
    settings.size = sizeof settings;
    settings.tiers = 7;
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "7");
    settings.tiers = 0;
    settings.sampling = -3;
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "-3");
}

static void code(const uruk_dylib *dylib)
{
    uruk_function function;
    uint64_t address;
    uruk_error *error;

    FAILS(uruk_dylib_add_ir(dylib, "bad.ll", "define i32 @f( {"), URUK_ERROR_CODE, "bad.ll");
    FAILS(uruk_dylib_add_ir(dylib, "\xff\xfe", ""), URUK_ERROR_ARGUMENT, "not UTF-8");
    FAILS(uruk_dylib_add_ir(dylib, NULL, ""), URUK_ERROR_ARGUMENT, "name");
    FAILS(uruk_dylib_add_bitcode(dylib, "bad.bc", "BC\xc0\xde damaged", 12), URUK_ERROR_CODE,
          "bad.bc");
    FAILS(uruk_dylib_add_bitcode(dylib, "none.bc", NULL, 12), URUK_ERROR_ARGUMENT, "bytes");
    FAILS(uruk_dylib_add_bitcode(dylib, "none.bc", NULL, 0), URUK_ERROR_CODE, "none.bc");
    FAILS(uruk_dylib_add_object(dylib, "bad.o", "\177ELF", 4), URUK_ERROR_LINK, "bad.o");
    FAILS(uruk_dylib_add_file(dylib, "no/such/file"), URUK_ERROR_FILE, "no/such/file");
    FAILS(uruk_dylib_add_library(dylib, "no/such/library.so", NULL, NULL, NULL, NULL),
          URUK_ERROR_LIBRARY, "no/such/library.so");

    error = uruk_dylib_add_ir(dylib, "m", "declare i32 @nowhere()\ndeclare i32 @nothing()\n"
                                          "define i32 @f() {\n"
                                          "  %a = call i32 @nowhere()\n"
                                          "  %b = call i32 @nothing()\n"
                                          "  ret i32 %a\n"
                                          "}\n");
    CHECK(uruk_error_code(error) == URUK_ERROR_MISSING);
    CHECK(uruk_error_name_count(error) == 2);
    CHECK(uruk_error_name(error, 2) == NULL);
    CHECK(strcmp(uruk_error_name(error, 0), "nowhere") == 0
          || strcmp(uruk_error_name(error, 1), "nowhere") == 0);
    uruk_error_free(error);

    FINE(uruk_dylib_add_ir(dylib, "good", "@data = global i32 1\n"
                                          "define i32 @f() { ret i32 42 }\n"));
    FAILS(uruk_dylib_add_ir(dylib, "twice", "define i32 @f() { ret i32 43 }"),
          URUK_ERROR_DUPLICATE, "f");
    FAILS(uruk_dylib_function(dylib, "f", "i64 ()", &function), URUK_ERROR_SIGNATURE,
          "function `f` is i32 (), not i64 ()");
    FAILS(uruk_dylib_function(dylib, "data", NULL, &function), URUK_ERROR_NOT_A_FUNCTION, "data");
    FAILS(uruk_dylib_lookup(dylib, "gone", &address), URUK_ERROR_MISSING, "gone");
    FAILS(uruk_dylib_compile(dylib, "f", 9), URUK_ERROR_ARGUMENT, "9");
    FAILS(uruk_dylib_compile(dylib, "gone", 0), URUK_ERROR_MISSING, "gone");
    FINE(uruk_dylib_function(dylib, "f", "i32 ()", &function));
    CHECK(((int (*)(void))function)() == 42);
}

/* Calls of what cannot be compiled go where the host says. */
static int minus_one(void)
{
    return -1;
}

static uruk_function answer(void *context, const char *function, const uruk_error *cause)
{
    CHECK(strcmp(function, "needs") == 0);
    CHECK(uruk_error_code(cause) == URUK_ERROR_MISSING);
    ++*(int *)context;
    return (uruk_function)minus_one;
}

static void failed_calls(void)
{
    uruk_jit *jit;
    uruk_settings settings;
    uruk_function function;
    uruk_names *names;
    int asked = 0;

    uruk_settings_init(&settings, sizeof settings);
    settings.context = &asked;
    settings.on_failed_call = answer;
    FINE(uruk_jit_new(&settings, &jit));
    FINE(uruk_dylib_allow_missing(uruk_jit_main(jit), 1));
    FINE(uruk_dylib_add_ir(uruk_jit_main(jit), "m",
                           "declare i32 @later()\n"
                           "define i32 @needs() { %v = call i32 @later() ret i32 %v }"));
    FINE(uruk_dylib_function(uruk_jit_main(jit), "needs", "i32 ()", &function));
    CHECK(((int (*)(void))function)() == -1);
    CHECK(asked == 1);
    FINE(uruk_dylib_unresolved(uruk_jit_main(jit), &names));
    CHECK(uruk_names_count(names) == 1 && strcmp(uruk_names_at(names, 0), "later") == 0);
    uruk_names_free(names);
    FINE(uruk_dylib_add_ir(uruk_jit_main(jit), "n", "define i32 @later() { ret i32 5 }"));
    CHECK(((int (*)(void))function)() == 5);
    uruk_jit_free(jit);
}

int main(void)
{
    uruk_jit *jit;

    null_pointers();
    settings_of_other_versions();
    FINE(uruk_jit_new(NULL, &jit));
    code(uruk_jit_main(jit));
    uruk_jit_free(jit);
    failed_calls();
    puts("passed");
    return 0;
}
