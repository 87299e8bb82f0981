/* Functions of the host that fail: the guarded call ends with their error, and no made-up value. */
#include "check.h"
#include <unistd.h>

static uruk_value integer(int kind, int64_t number)
{
    uruk_value value;
    value.kind = kind;
    value.bits.integer = number;
    return value;
}

static uruk_callable *callable(const uruk_dylib *dylib, const char *name)
{
    uruk_callable *made;
    FINE(uruk_dylib_callable(dylib, name, NULL, &made));
    return made;
}

/* An error of a function of the host: its own code, text and names stay. */
static void raised(uruk_error *error, int code, const char *text, const char *function)
{
    const uruk_error *cause = uruk_error_cause(error);

    CHECK(uruk_error_code(error) == URUK_ERROR_TRAP);
    CHECK(uruk_error_trap(error) == URUK_TRAP_HOST);
    CHECK(strstr(uruk_error_text(error), text) != NULL);
    CHECK(uruk_error_name_count(error) > 0);
    CHECK(strcmp(uruk_error_name(error, 0), function) == 0
          || strcmp(uruk_error_name(error, 1), function) == 0);
    CHECK(uruk_error_code(cause) == code);
    CHECK(strstr(uruk_error_text(cause), text) != NULL);
    /* That of a call within has a cause of its own. */
    CHECK((uruk_error_cause(cause) != NULL) == (code == URUK_ERROR_TRAP));
    uruk_error_free(error);
}

/* Prices of positive numbers, which `context` counts. */
static uruk_error *price(void *context, const uruk_value *values, size_t count, uruk_value *result)
{
    CHECK(count == 1 && values[0].kind == URUK_VALUE_I32);
    ++*(int *)context;
    if (values[0].bits.integer == 7) {
        return uruk_error_new("no price of 7");
    }
    if (values[0].bits.integer == 8) {
        return NULL; /* No result. */
    }
    result->kind = values[0].bits.integer == 9 ? URUK_VALUE_I64 : URUK_VALUE_I32;
    result->bits.integer = values[0].bits.integer == 10 ? (int64_t)1 << 40 : -5;
    return NULL;
}

static void dropped(void *context)
{
    *(int *)context += 1000;
}

static void functions_with_errors(void)
{
    static const char *const ir = "declare i32 @price(i32)\n"
                                  "define i32 @total(i32 %x) {\n"
                                  "  %p = call i32 @price(i32 %x)\n"
                                  "  %t = add i32 %p, 1000\n"
                                  "  ret i32 %t\n"
                                  "}\n";
    uruk_jit *jit;
    const uruk_dylib *dylib;
    uruk_callable *total;
    uruk_value value, result;
    int calls = 0, unused = 0, turn;

    FINE(uruk_jit_new(NULL, &jit));
    dylib = uruk_jit_main(jit);
    FINE(uruk_dylib_define_host(dylib, "price", "i32 (i32)", price, &calls, dropped));
    FAILS(uruk_dylib_add_ir(dylib, "w", "declare i64 @price(i32)\n"
                                        "define i64 @w() {\n"
                                        "  %p = call i64 @price(i32 1)\n"
                                        "  ret i64 %p\n"
                                        "}\n"),
          URUK_ERROR_SIGNATURE, "`price` is declared as i64 (i32)");
    FINE(uruk_dylib_add_ir(dylib, "m", ir));
    total = callable(dylib, "total");
    for (turn = 0; turn < 3; ++turn) {
        value = integer(URUK_VALUE_I32, 3);
        FINE(uruk_callable_call(total, &value, 1, turn == 1 ? 3600000 : 0, &result));
        CHECK(result.kind == URUK_VALUE_I32 && result.bits.integer == 995);
        result.bits.integer = 77;
        value = integer(URUK_VALUE_I32, 7);
        raised(uruk_callable_call(total, &value, 1, 0, &result), URUK_ERROR_CALLBACK,
               "no price of 7", "total");
        CHECK(result.bits.integer == 77);
        value = integer(URUK_VALUE_I32, 8);
        FAILS(uruk_callable_call(total, &value, 1, 0, &result), URUK_ERROR_TRAP, "its result is Void");
        value = integer(URUK_VALUE_I32, 9);
        FAILS(uruk_callable_call(total, &value, 1, 0, &result), URUK_ERROR_TRAP, "returns i32");
        value = integer(URUK_VALUE_I32, 10);
        raised(uruk_callable_call(total, &value, 1, 0, &result), URUK_ERROR_ARGUMENT,
               "does not fit", "total");
        FINE(uruk_dylib_compile(dylib, "total", 2));
    }
    CHECK(calls == 15);
    uruk_callable_free(total);

    /* Whatever is wrong with a definition, `drop` is called, and once. */
    FAILS(uruk_dylib_define_host(NULL, "f", "i32 ()", price, &unused, dropped),
          URUK_ERROR_ARGUMENT, "dylib");
    FAILS(uruk_dylib_define_host(dylib, NULL, "i32 ()", price, &unused, dropped),
          URUK_ERROR_ARGUMENT, "name");
    FAILS(uruk_dylib_define_host(dylib, "f", NULL, price, &unused, dropped),
          URUK_ERROR_ARGUMENT, "type");
    FAILS(uruk_dylib_define_host(dylib, "f", "i32 ()", NULL, &unused, dropped),
          URUK_ERROR_ARGUMENT, "body");
    FAILS(uruk_dylib_define_host(dylib, "f", "<4 x i32> ()", price, &unused, dropped),
          URUK_ERROR_SIGNATURE, "<4 x i32>");
    FAILS(uruk_dylib_define_host(dylib, "f", "nonsense", price, &unused, dropped),
          URUK_ERROR_SIGNATURE, "nonsense");
    FAILS(uruk_dylib_define_host(dylib, "price", "i32 (i32)", price, &unused, dropped),
          URUK_ERROR_DUPLICATE, "price");
    CHECK(unused == 7000);
    CHECK(calls == 15);
    uruk_jit_free(jit);
    /* By the last thread of the session. */
    for (turn = 0; turn < 10000 && *(volatile int *)&calls == 15; ++turn) {
        usleep(1000);
    }
    CHECK(calls == 1015);
}

/* All kinds of values, one after the other, there and back. */
static uruk_error *turn(void *context, const uruk_value *values, size_t count, uruk_value *result)
{
    (void)context;
    CHECK(count == 9);
    CHECK(values[0].kind == URUK_VALUE_I1 && values[0].bits.integer == 1);
    CHECK(values[1].kind == URUK_VALUE_I8 && values[1].bits.integer == -1);
    CHECK(values[2].kind == URUK_VALUE_I16 && values[2].bits.integer == -2);
    CHECK(values[3].kind == URUK_VALUE_I32 && values[3].bits.integer == -3);
    CHECK(values[4].kind == URUK_VALUE_I64 && values[4].bits.integer == -4);
    CHECK(values[5].kind == URUK_VALUE_FLOAT && values[5].bits.real == 0.5);
    CHECK(values[6].kind == URUK_VALUE_DOUBLE && values[6].bits.real == 0.25);
    CHECK(values[7].kind == URUK_VALUE_PTR && values[7].bits.pointer == NULL);
    CHECK(values[8].kind == URUK_VALUE_I64 && values[8].bits.integer == 9);
    *result = values[6];
    return NULL;
}

static uruk_error *half(void *context, const uruk_value *values, size_t count, uruk_value *result)
{
    (void)context;
    CHECK(count == 1);
    *result = values[0];
    result->bits.integer /= 2;
    return NULL;
}

static void kinds_of_values(void)
{
    static const char *const ir =
        "declare double @turn(i1, i8, i16, i32, i64, float, double, ptr, i64)\n"
        "declare signext i8 @half(i8 signext)\n"
        "declare zeroext i8 @uhalf(i8 zeroext)\n"
        "define double @all() {\n"
        "  %d = call double @turn(i1 1, i8 -1, i16 -2, i32 -3, i64 -4, float 0.5, double 0.25,\n"
        "                         ptr null, i64 9)\n"
        "  ret double %d\n"
        "}\n"
        "define signext i8 @signed(i8 signext %x) {\n"
        "  %y = call signext i8 @half(i8 signext %x)\n"
        "  ret i8 %y\n"
        "}\n"
        "define i64 @wide(i8 zeroext %x) {\n"
        "  %y = call zeroext i8 @uhalf(i8 zeroext %x)\n"
        "  %z = zext i8 %y to i64\n"
        "  ret i64 %z\n"
        "}\n"
        "define i32 @grown(i16 signext %x) { %y = sext i16 %x to i32 ret i32 %y }\n";
    uruk_jit *jit;
    const uruk_dylib *dylib;
    uruk_callable *called;
    uruk_function function;
    uruk_value value, result;

    FINE(uruk_jit_new(NULL, &jit));
    dylib = uruk_jit_main(jit);
    FINE(uruk_dylib_define_host(
        dylib, "turn", "double (i1, i8, i16, i32, i64, float, double, ptr, i64)", turn, NULL, NULL));
    FINE(uruk_dylib_define_host(dylib, "half", "i8 signext (i8 signext)", half, NULL, NULL));
    FINE(uruk_dylib_define_host(dylib, "uhalf", "i8 zeroext (i8 zeroext)", half, NULL, NULL));
    FINE(uruk_dylib_add_ir(dylib, "m", ir));
    called = callable(dylib, "all");
    FINE(uruk_callable_call(called, NULL, 0, 0, &result));
    CHECK(result.kind == URUK_VALUE_DOUBLE && result.bits.real == 0.25);
    uruk_callable_free(called);
    called = callable(dylib, "signed");
    value = integer(URUK_VALUE_I8, -100);
    FINE(uruk_callable_call(called, &value, 1, 0, &result));
    CHECK(result.bits.integer == -50);
    uruk_callable_free(called);
    called = callable(dylib, "wide");
    value = integer(URUK_VALUE_I8, 100);
    FINE(uruk_callable_call(called, &value, 1, 0, &result));
    CHECK(result.bits.integer == 50);
    uruk_callable_free(called);

    /* The type that is said is compared; extensions may be left out, and count all the same. */
    FAILS(uruk_dylib_callable(dylib, "grown", "i32 (i32)", &called), URUK_ERROR_SIGNATURE,
          "function `grown` is i32 (i16 signext), not i32 (i32)");
    CHECK(called == NULL);
    FAILS(uruk_dylib_function(dylib, "grown", "i32 (double)", &function), URUK_ERROR_SIGNATURE,
          "not i32 (double)");
    FAILS(uruk_dylib_callable(dylib, "grown", "nonsense", &called), URUK_ERROR_SIGNATURE,
          "nonsense");
    FINE(uruk_dylib_function(dylib, "grown", "i32 (i16)", &function));
    CHECK(((int (*)(short))function)(-3) == -3);
    FINE(uruk_dylib_callable(dylib, "grown", "i32 (i16)", &called));
    value = integer(URUK_VALUE_I16, -3);
    FINE(uruk_callable_call(called, &value, 1, 0, &result));
    CHECK(result.bits.integer == -3);
    uruk_callable_free(called);
    uruk_jit_free(jit);
}

/* A function of the host like any other, which raises. */
static int64_t check(int64_t number)
{
    if (number < 0) {
        uruk_error *back = uruk_raise(uruk_error_new("a negative number"));
        /* Only where there is no guarded call. */
        CHECK(strcmp(uruk_error_text(back), "a negative number") == 0);
        uruk_error_free(back);
        return -1;
    }
    return number;
}

static uruk_callable *inner_call;
static const uruk_dylib *main_dylib;

/* Makes guarded calls of its own, whose errors it passes on by its own status. */
static uruk_error *nested(void *context, const uruk_value *values, size_t count, uruk_value *result)
{
    uruk_error *error = uruk_callable_call(inner_call, values, count, 0, result);

    (void)context;
    return error;
}

/* Raised in a callback of the library, an error does not leave the library's frames. */
static void generate(void *context, uruk_generator_request *ask)
{
    uruk_error *error = uruk_error_new("by a generator");

    CHECK(uruk_raise(error) == error);
    ++*(int *)context;
    FINE(uruk_generator_request_finish(ask, error));
}

static int64_t looks(int64_t number)
{
    uint64_t address;

    FAILS(uruk_dylib_lookup(main_dylib, "nowhere", &address), URUK_ERROR_SESSION, "by a generator");
    return number;
}

static void raising(void)
{
    static const char *const ir =
        "declare i64 @check(i64)\n"
        "declare i64 @nested(i64)\n"
        "declare i64 @looks(i64)\n"
        "define i64 @inner(i64 %n) { %v = call i64 @check(i64 %n) ret i64 %v }\n"
        "define i64 @outer(i64 %n) { %v = call i64 @nested(i64 %n) ret i64 %v }\n"
        "define i64 @asks(i64 %n) { %v = call i64 @looks(i64 %n) ret i64 %v }\n";
    uruk_jit *jit;
    uruk_callable *outer, *asks;
    uruk_function inner;
    uruk_value value, result;
    int turn, asked = 0;

    FINE(uruk_jit_new(NULL, &jit));
    main_dylib = uruk_jit_main(jit);
    FINE(uruk_dylib_define_function(main_dylib, "check", "i64 (i64)", (uruk_function)check));
    FINE(uruk_dylib_define_function(main_dylib, "looks", "i64 (i64)", (uruk_function)looks));
    FINE(uruk_dylib_define_host(main_dylib, "nested", "i64 (i64)", nested, NULL, NULL));
    FINE(uruk_dylib_add_ir(main_dylib, "m", ir));
    FINE(uruk_dylib_add_generator(main_dylib, generate, &asked, NULL, NULL));
    inner_call = callable(main_dylib, "inner");
    outer = callable(main_dylib, "outer");
    asks = callable(main_dylib, "asks");
    for (turn = 0; turn < 20; ++turn) {
        value = integer(URUK_VALUE_I64, 5);
        FINE(uruk_callable_call(outer, &value, 1, 0, &result));
        CHECK(result.bits.integer == 5);
        value = integer(URUK_VALUE_I64, -5);
        raised(uruk_callable_call(inner_call, &value, 1, turn % 2 ? 3600000 : 0, &result),
               URUK_ERROR_CALLBACK, "a negative number", "inner");
        raised(uruk_callable_call(outer, &value, 1, 0, &result), URUK_ERROR_TRAP,
               "a negative number", "outer");
        value = integer(URUK_VALUE_I64, 6);
        FINE(uruk_callable_call(asks, &value, 1, 0, &result));
        CHECK(result.bits.integer == 6);
    }
    CHECK(asked > 0);
    /* Not in a guarded call: it comes back. */
    FINE(uruk_dylib_function(main_dylib, "inner", "i64 (i64)", &inner));
    CHECK(((int64_t(*)(int64_t))inner)(-5) == -1);
    CHECK(uruk_raise(NULL) == NULL);
    uruk_callable_free(inner_call);
    uruk_callable_free(outer);
    uruk_callable_free(asks);
    uruk_jit_free(jit);
}

int main(void)
{
    functions_with_errors();
    kinds_of_values();
    raising();
    puts("passed");
    return 0;
}
