/* Calls with values that are compared; faults, deadlines and interrupts are errors. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

static const char *const program =
    "define i32 @divide(i32 %a, i32 %b) { %q = sdiv i32 %a, %b ret i32 %q }\n"
    "define double @scale(i64 %n, double %x, float %y) {\n"
    "  %f = sitofp i64 %n to double\n"
    "  %m = fmul double %f, %x\n"
    "  %z = fpext float %y to double\n"
    "  %r = fadd double %m, %z\n"
    "  ret double %r\n"
    "}\n"
    "define i64 @read(ptr %p) { %v = load i64, ptr %p ret i64 %v }\n"
    "define i64 @outer(ptr %p) { %v = call i64 @read(ptr %p) %w = add i64 %v, 1 ret i64 %w }\n"
    "define i64 @down(i64 %n) {\n"
    "  %m = add i64 %n, 1\n"
    "  %v = call i64 @down(i64 %m)\n"
    "  %w = add i64 %v, %n\n"
    "  ret i64 %w\n"
    "}\n"
    "define void @spin() { br label %l l: br label %l }\n";

static uruk_value integer(int kind, int64_t number)
{
    uruk_value value;
    value.kind = kind;
    value.bits.integer = number;
    return value;
}

static uruk_value real(int kind, double number)
{
    uruk_value value;
    value.kind = kind;
    value.bits.real = number;
    return value;
}

static uruk_callable *callable(const uruk_dylib *dylib, const char *name)
{
    uruk_callable *made;
    FINE(uruk_dylib_callable(dylib, name, NULL, &made));
    return made;
}

/* An error of a trap; its innermost function. */
static void traps(uruk_error *error, int kind, const char *function)
{
    if (uruk_error_trap(error) != kind) {
        fprintf(stderr, "%d: %s\n", uruk_error_trap(error), uruk_error_text(error));
        abort();
    }
    CHECK(uruk_error_code(error) == URUK_ERROR_TRAP);
    if (function != NULL) {
        CHECK(uruk_error_name_count(error) > 0);
        CHECK(strcmp(uruk_error_name(error, 0), function) == 0);
    }
    uruk_error_free(error);
}

static void values(const uruk_dylib *dylib)
{
    uruk_callable *divide = callable(dylib, "divide");
    uruk_callable *scale = callable(dylib, "scale");
    uruk_value given[3], result;
    char *type = uruk_callable_type(scale);

    CHECK(strcmp(type, "double (i64, double, float)") == 0);
    uruk_string_free(type);
    given[0] = integer(URUK_VALUE_I32, 42);
    given[1] = integer(URUK_VALUE_I32, -2);
    FINE(uruk_callable_call(divide, given, 2, 0, &result));
    CHECK(result.kind == URUK_VALUE_I32 && result.bits.integer == -21);
    given[1].bits.integer = 0;
    traps(uruk_callable_call(divide, given, 2, 0, &result), URUK_TRAP_DIVISION, "divide");
    given[1].bits.integer = 7;
    FINE(uruk_callable_call(divide, given, 2, 0, &result));
    CHECK(result.bits.integer == 6);
    FAILS(uruk_callable_call(divide, given, 1, 0, &result), URUK_ERROR_SIGNATURE, "2 values");
    given[1] = real(URUK_VALUE_DOUBLE, 1.0);
    FAILS(uruk_callable_call(divide, given, 2, 0, NULL), URUK_ERROR_SIGNATURE, "value 1");
    given[1] = integer(URUK_VALUE_I32, (int64_t)1 << 40);
    FAILS(uruk_callable_call(divide, given, 2, 0, NULL), URUK_ERROR_ARGUMENT, "does not fit");
    given[1] = integer(77, 0);
    FAILS(uruk_callable_call(divide, given, 2, 0, NULL), URUK_ERROR_ARGUMENT, "77");
    given[0] = integer(URUK_VALUE_I64, 3);
    given[1] = real(URUK_VALUE_DOUBLE, 1.5);
    given[2] = real(URUK_VALUE_FLOAT, 0.25);
    FINE(uruk_callable_call(scale, given, 3, 0, &result));
    CHECK(result.kind == URUK_VALUE_DOUBLE && result.bits.real == 4.75);
    uruk_callable_free(divide);
    uruk_callable_free(scale);
    FAILS(uruk_dylib_callable(dylib, "nobody", NULL, &divide), URUK_ERROR_MISSING, "nobody");
    CHECK(divide == NULL);
}

static void faults(const uruk_dylib *dylib)
{
    uruk_callable *outer = callable(dylib, "outer");
    uruk_callable *down = callable(dylib, "down");
    uruk_value pointer, result;
    int64_t there = 41;
    uruk_error *error;

    pointer.kind = URUK_VALUE_PTR;
    pointer.bits.pointer = &there;
    FINE(uruk_callable_call(outer, &pointer, 1, 0, &result));
    CHECK(result.bits.integer == 42);
    pointer.bits.pointer = NULL;
    error = uruk_callable_call(outer, &pointer, 1, 0, &result);
    CHECK(uruk_error_name_count(error) >= 2);
    CHECK(strcmp(uruk_error_name(error, 1), "outer") == 0);
    traps(error, URUK_TRAP_MEMORY, "read");
    pointer = integer(URUK_VALUE_I64, 1);
    traps(uruk_callable_call(down, &pointer, 1, 0, &result), URUK_TRAP_STACK_OVERFLOW, "down");
    uruk_callable_free(outer);
    uruk_callable_free(down);
}

static uruk_jit *jit;
static uruk_thread *thread;

static void *interrupt(void *unused)
{
    (void)unused;
    while (!uruk_jit_interrupt(jit, thread)) {
        usleep(1000);
    }
    return NULL;
}

static void ends(const uruk_dylib *dylib)
{
    uruk_callable *spin = callable(dylib, "spin");
    pthread_t other;

    traps(uruk_callable_call(spin, NULL, 0, 20, NULL), URUK_TRAP_DEADLINE, NULL);
    thread = uruk_thread_current();
    CHECK(uruk_jit_interrupt(jit, thread) == 0);
    CHECK(pthread_create(&other, NULL, interrupt, NULL) == 0);
    traps(uruk_callable_call(spin, NULL, 0, 0, NULL), URUK_TRAP_INTERRUPTED, NULL);
    CHECK(pthread_join(other, NULL) == 0);
    uruk_thread_free(thread);
    uruk_callable_free(spin);
}

static jmp_buf away;

static void jump(int64_t n)
{
    longjmp(away, (int)n);
}

/* Errors of a host that jumps over a guarded call, as those of PostgreSQL and Lua do. */
static void jumps(const uruk_dylib *dylib)
{
    uruk_callable *leaves;
    uruk_callable *divide = callable(dylib, "divide");
    uruk_value given[2];
    volatile int n;

    given[0] = integer(URUK_VALUE_I32, 1);
    given[1] = integer(URUK_VALUE_I32, 0);
    FINE(uruk_dylib_define_function(dylib, "jump", "void (i64)", (uruk_function)jump));
    FINE(uruk_dylib_add_ir(dylib, "j", "declare void @jump(i64)\n"
                                       "define void @leaves(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e,\n"
                                       "                    i64 %f, i64 %g, i64 %n) {\n"
                                       "  call void @jump(i64 %n)\n"
                                       "  ret void\n"
                                       "}\n"));
    leaves = callable(dylib, "leaves");
    for (n = 1; n < 20; ++n) {
        /* More than registers hold: nothing of them is left over (AddressSanitizer). */
        uruk_value eight[8];
        size_t at;

        for (at = 0; at < 8; ++at) {
            eight[at] = integer(URUK_VALUE_I64, n);
        }
        if (setjmp(away) == 0) {
            FINE(uruk_callable_call(leaves, eight, 8, n % 2 ? 3600000 : 1, NULL));
            CHECK(0);
        }
        traps(uruk_callable_call(divide, given, 2, 3600000, NULL), URUK_TRAP_DIVISION, "divide");
    }
    uruk_callable_free(leaves);
    uruk_callable_free(divide);
}

static double half(double x)
{
    return x / 2;
}

static void declarations(const uruk_dylib *dylib)
{
    FINE(uruk_dylib_define_function(dylib, "half", "double (double)", (uruk_function)half));
    FAILS(uruk_dylib_define_function(dylib, "odd", "nonsense", (uruk_function)half),
          URUK_ERROR_ARGUMENT, "nonsense");
    FAILS(uruk_dylib_add_ir(dylib, "w", "declare i64 @half(i64)\n"
                                        "define i64 @g() { %x = call i64 @half(i64 2) ret i64 %x }"),
          URUK_ERROR_SIGNATURE, "declared as i64 (i64)");
}

/* Code that counts its passes ends at the same one each time. */
static void fuel(void)
{
    const uruk_dylib *dylib;
    uruk_callable *spin;
    uruk_jit *counting;
    uruk_settings settings;
    uint64_t before = uruk_thread_fuel_used();

    uruk_settings_init(&settings, sizeof settings);
    settings.count_fuel = 1;
    FINE(uruk_jit_new(&settings, &counting));
    dylib = uruk_jit_main(counting);
    FINE(uruk_dylib_add_ir(dylib, "m", program));
    spin = callable(dylib, "spin");
    traps(uruk_callable_call_with_fuel(spin, NULL, 0, 0, 50000, NULL), URUK_TRAP_OUT_OF_FUEL,
          "spin");
    CHECK(uruk_thread_fuel_used() - before == 50001);
    traps(uruk_callable_call(spin, NULL, 0, 5, NULL), URUK_TRAP_DEADLINE, "spin");
    uruk_callable_free(spin);
    uruk_jit_free(counting);
}

int main(void)
{
    const uruk_dylib *dylib;
    uruk_callable *spin;

    FINE(uruk_jit_new(NULL, &jit));
    dylib = uruk_jit_main(jit);
    FINE(uruk_dylib_add_ir(dylib, "m", program));
    values(dylib);
    faults(dylib);
    ends(dylib);
    jumps(dylib);
    declarations(dylib);
    spin = callable(dylib, "spin");
    traps(uruk_callable_call_with_fuel(spin, NULL, 0, 0, 5, NULL), URUK_TRAP_NOT_COUNTED, NULL);
    uruk_callable_free(spin);
    uruk_jit_free(jit);
    fuel();
    puts("passed");
    return 0;
}
