/* Sessions, code, lookups, replacement, removal, statistics. */
#include "check.h"

typedef int64_t (*unary)(int64_t);
typedef int64_t (*nullary)(void);

static int64_t doubled(int64_t x)
{
    return 2 * x;
}

static unary unary_of(const uruk_dylib *dylib, const char *name)
{
    uruk_function function;
    FINE(uruk_dylib_function(dylib, name, "i64 (i64)", &function));
    return (unary)function;
}

/* What a person wants to see of `quad`, which has code of tier 2. */
static void seen(uruk_jit *jit, const uruk_dylib *dylib)
{
    char *text;
    uruk_names *names;

    FINE(uruk_dylib_disassemble(dylib, "quad", 0, &text));
    CHECK(text != NULL && strchr(text, '\n') != NULL);
    uruk_string_free(text);
    FINE(uruk_dylib_disassemble(dylib, "quad", 3, &text));
    CHECK(text == NULL);
    FINE(uruk_dylib_ir(dylib, "quad", 2, &text));
    CHECK(strstr(text, "@doubled") != NULL);
    uruk_string_free(text);
    FAILS(uruk_dylib_ir(dylib, "quad", 0, &text), URUK_ERROR_ARGUMENT, "tier");
    FINE(uruk_jit_hottest(jit, 1, &names));
    CHECK(uruk_names_count(names) == 1 && strcmp(uruk_names_at(names, 0), "quad") == 0);
    uruk_names_free(names);
    FAILS(uruk_jit_report_page(jit, &text), URUK_ERROR_ARGUMENT, "record");
}

/* A session that records has its page and its timeline. */
static void recorded(void)
{
    char file[64];
    uruk_settings settings;
    uruk_jit *jit;
    char *page;

    /* Other processes run the same. */
    sprintf(file, "recorded-%p.json", (void *)&settings);
    uruk_settings_init(&settings, sizeof settings);
    settings.record = 1;
    FINE(uruk_jit_new(&settings, &jit));
    FINE(uruk_dylib_add_ir(uruk_jit_main(jit), "m", "define i32 @one() { ret i32 1 }"));
    FINE(uruk_dylib_compile(uruk_jit_main(jit), "one", 0));
    FINE(uruk_jit_report_page(jit, &page));
    CHECK(strncmp(page, "<!DOCTYPE html>", 15) == 0 && strstr(page, "one") != NULL);
    uruk_string_free(page);
    FINE(uruk_jit_trace(jit, file));
    CHECK(remove(file) == 0);
    uruk_jit_free(jit);
}

static void code(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_function function;
    uint64_t address;
    char *type;
    int tier = -1, evicted = 0;

    FINE(uruk_dylib_define_function(dylib, "doubled", "i64 (i64)", (uruk_function)doubled));
    FINE(uruk_dylib_add_ir(dylib, "m",
                           "@counter = global i64 5\n"
                           "declare i64 @doubled(i64)\n"
                           "define i64 @quad(i64 %x) {\n"
                           "  %a = call i64 @doubled(i64 %x)\n"
                           "  %b = call i64 @doubled(i64 %a)\n"
                           "  ret i64 %b\n"
                           "}\n"
                           "define i64 @count() {\n"
                           "  %a = load i64, ptr @counter\n"
                           "  %b = add i64 %a, 1\n"
                           "  store i64 %b, ptr @counter\n"
                           "  ret i64 %b\n"
                           "}\n"));
    FINE(uruk_dylib_tier(dylib, "quad", &tier));
    CHECK(tier == 0);
    CHECK(unary_of(dylib, "quad")(10) == 40);
    FINE(uruk_dylib_tier(dylib, "quad", &tier));
    CHECK(tier == 1);
    FINE(uruk_dylib_compile(dylib, "quad", 2));
    FINE(uruk_dylib_tier(dylib, "quad", &tier));
    CHECK(tier == 2);
    CHECK(unary_of(dylib, "quad")(11) == 44);
    seen(jit, dylib);
    FINE(uruk_dylib_pin(dylib, "quad", 2));
    FINE(uruk_dylib_pin(dylib, "quad", 0));
    FINE(uruk_dylib_lookup(dylib, "counter", &address));
    CHECK(*(int64_t *)(uintptr_t)address == 5);
    FINE(uruk_dylib_function(dylib, "count", "i64 ()", &function));
    CHECK(((nullary)function)() == 6);
    CHECK(*(int64_t *)(uintptr_t)address == 6);
    FINE(uruk_dylib_evict(dylib, "count", &evicted));
    CHECK(evicted == 1);
    CHECK(((nullary)function)() == 7);
    FINE(uruk_dylib_type(dylib, "quad", &type));
    CHECK(strcmp(type, "i64 (i64)") == 0);
    uruk_string_free(type);
    CHECK(uruk_dylib_state(dylib, "quad") == URUK_STATE_READY);
    CHECK(uruk_dylib_state(dylib, "nothing") == URUK_STATE_NONE);
}

static void replacement(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_replacement how;
    uruk_replaced *replaced;
    uruk_names *names;
    unary quad = unary_of(dylib, "quad");
    size_t held = 1;
    int tries;

    memset(&how, 0, sizeof how);
    how.size = sizeof how;
    how.name = "fix";
    how.data = "define i64 @quad(i64 %x) { %y = mul i64 %x, 100 ret i64 %y }\n"
               "define i64 @fresh(i64 %x) { ret i64 %x }\n";
    how.quiescent = 1;
    how.wait_ms = 10000;
    FINE(uruk_dylib_replace(dylib, &how, &replaced));
    CHECK(quad(3) == 300);
    CHECK(unary_of(dylib, "fresh")(9) == 9);
    names = uruk_replaced_names(replaced, URUK_REPLACED_FUNCTIONS);
    CHECK(uruk_names_count(names) == 1);
    CHECK(strcmp(uruk_names_at(names, 0), "quad") == 0);
    CHECK(uruk_names_at(names, 1) == NULL);
    uruk_names_free(names);
    names = uruk_replaced_names(replaced, URUK_REPLACED_ADDED);
    CHECK(uruk_names_count(names) == 1);
    uruk_names_free(names);
    CHECK(uruk_replaced_names(replaced, 99) == NULL);
    /* A thread that compiled may still be on its way to its rest. */
    for (tries = 0; tries < 10000 && held != 0; tries++) {
        FINE(uruk_replaced_activations(replaced, &names));
        held = uruk_names_count(names);
        uruk_names_free(names);
    }
    CHECK(held == 0);
    FINE(uruk_replaced_rollback(replaced));
    CHECK(quad(3) == 12);
    uruk_replaced_free(replaced);
    how.quiescent = 0;
    how.osr = 1;
    FINE(uruk_dylib_replace(dylib, &how, &replaced));
    /* Nobody is in a loop. */
    FINE(uruk_replaced_loops(replaced, &names));
    CHECK(uruk_names_count(names) == 0);
    uruk_names_free(names);
    FINE(uruk_replaced_rollback(replaced));
    uruk_replaced_free(replaced);
    FAILS(uruk_jit_rollback(jit, NULL), URUK_ERROR_REPLACE, "");
    FAILS(uruk_dylib_replace_ir(dylib, "bad", "define i32 @quad() { ret i32 1 }"),
          URUK_ERROR_REPLACE, "signature of `quad` changed");
}

static void fill(void *context, const void *old, size_t old_size, void *fresh, size_t size)
{
    int64_t value;
    int32_t half;
    CHECK(old_size == 8 && size == 4);
    memcpy(&value, old, sizeof value);
    half = (int32_t)value;
    memcpy(fresh, &half, sizeof half);
    ++*(int *)context;
}

static void migration(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_migration move;
    uruk_replacement how;
    uruk_function function;
    int filled = 0;

    move.global = "counter";
    move.fill = fill;
    memset(&how, 0, sizeof how);
    how.size = sizeof how;
    how.name = "narrow";
    how.data = "@counter = global i32 0\n"
               "define i64 @count() {\n"
               "  %a = load i32, ptr @counter\n"
               "  %b = sext i32 %a to i64\n"
               "  ret i64 %b\n"
               "}\n";
    how.migrations = &move;
    how.migration_count = 1;
    how.context = &filled;
    FINE(uruk_dylib_replace(dylib, &how, NULL));
    CHECK(filled == 1);
    FINE(uruk_dylib_function(dylib, "count", "i64 ()", &function));
    CHECK(((nullary)function)() == 7);
}

static int released;

static void release(void *context)
{
    released += *(int *)context;
}

static void removal(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_tracker *one, *two;
    uruk_function function;
    int weight = 7;

    FINE(uruk_dylib_create_tracker(dylib, &one));
    FINE(uruk_dylib_create_tracker(dylib, &two));
    FINE(uruk_tracker_add_ir(one, "n", "define i64 @thrice(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }"));
    FINE(uruk_tracker_attach(one, &weight, release));
    CHECK(unary_of(dylib, "thrice")(5) == 15);
    FINE(uruk_tracker_transfer(one, two));
    CHECK(uruk_tracker_is_defunct(one) == 1);
    CHECK(uruk_tracker_is_defunct(two) == 0);
    CHECK(released == 0);
    FINE(uruk_tracker_remove(two));
    CHECK(released == 7);
    FAILS(uruk_dylib_function(dylib, "thrice", NULL, &function), URUK_ERROR_MISSING, "thrice");
    FAILS(uruk_tracker_remove(two), URUK_ERROR_SESSION, "defunct");
    uruk_tracker_free(one);
    uruk_tracker_free(two);
}

static void dylibs(uruk_jit *jit)
{
    uruk_dylib *math, *app, *again;
    uruk_names *names;
    uruk_alias alias;
    const uruk_dylib *both[2];
    uruk_jit *same;

    FINE(uruk_jit_create_dylib(jit, "math", &math));
    FINE(uruk_jit_create_dylib(jit, "app", &app));
    FAILS(uruk_jit_create_dylib(jit, "app", &again), URUK_ERROR_SESSION, "app");
    FINE(uruk_dylib_add_ir(math, "m", "define i64 @inc(i64 %x) { %y = add i64 %x, 1 ret i64 %y }"));
    FINE(uruk_dylib_add_to_link_order(app, math));
    alias.name = "successor";
    alias.target = "inc";
    alias.flags = URUK_FLAG_EXPORTED | URUK_FLAG_CALLABLE;
    FINE(uruk_dylib_reexport(app, math, URUK_SEES_EXPORTED, &alias, 1));
    FINE(uruk_dylib_add_ir(app, "a",
                           "declare i64 @inc(i64)\n"
                           "define i64 @f(i64 %x) { %y = call i64 @inc(i64 %x) ret i64 %y }"));
    CHECK(unary_of(app, "f")(1) == 2);
    CHECK(unary_of(app, "successor")(4) == 5);
    names = uruk_dylib_link_order(app);
    CHECK(uruk_names_count(names) >= 2);
    CHECK(strcmp(uruk_names_at(names, 0), "math") == 0);
    uruk_names_free(names);
    again = uruk_jit_dylib(jit, "math");
    CHECK(again != NULL);
    uruk_dylib_free(again);
    CHECK(uruk_jit_dylib(jit, "nobody") == NULL);
    same = uruk_dylib_jit(app);
    uruk_jit_free(same);
    FAILS(uruk_dylib_remove(math, 0), URUK_ERROR_REFUSED, "app");
    both[0] = math;
    both[1] = app;
    FINE(uruk_jit_remove_dylibs(jit, both, 2, 0));
    uruk_dylib_free(math);
    uruk_dylib_free(app);
    FAILS(uruk_dylib_remove(uruk_jit_main(jit), 0), URUK_ERROR_REFUSED, "main");
}

static void numbers(uruk_jit *jit)
{
    uruk_stats stats;
    uint64_t total = 0, part = 0;
    int done = 0;
    char *dump;

    FINE(uruk_jit_stats(jit, &stats, sizeof stats));
    CHECK(stats.size == sizeof stats);
    CHECK(stats.compiled >= 4 && stats.functions >= 4);
    CHECK(stats.tier_versions[1] >= 1);
    CHECK(stats.native_versions == 0 && stats.native_functions == 0 && stats.native_bytes == 0);
    /* A host that was compiled before the library told of native code. */
    memset(&stats, 0x5a, sizeof stats);
    FINE(uruk_jit_stats(jit, &stats, offsetof(uruk_stats, native_versions)));
    CHECK(stats.size == offsetof(uruk_stats, native_versions) && stats.compiled >= 4);
    CHECK(stats.native_versions == UINT64_C(0x5a5a5a5a5a5a5a5a));
    FINE(uruk_jit_memory(jit, "total", &total));
    FINE(uruk_jit_memory(jit, "code", &part));
    CHECK(part > 0 && part < total);
    FAILS(uruk_jit_memory(jit, "gold", &part), URUK_ERROR_ARGUMENT, "gold");
    FINE(uruk_jit_reclaim(jit, URUK_RECLAIM_SWEEP, 10000, &done));
    CHECK(done == 1);
    dump = uruk_jit_dump(jit);
    CHECK(strstr(dump, "quad: Ready") != NULL);
    uruk_string_free(dump);
}

int main(void)
{
    uruk_jit *jit;
    uruk_settings settings;

    CHECK(uruk_version()
          == URUK_VERSION_MAJOR * 1000000 + URUK_VERSION_MINOR * 1000 + URUK_VERSION_PATCH);
    CHECK(strlen(uruk_version_text()) >= 5);
    CHECK(strncmp(uruk_llvm_version(), "22.", 3) == 0);
    uruk_settings_init(&settings, sizeof settings);
    settings.jobs = 1;
    settings.sampling = URUK_SAMPLING_OFF;
    FINE(uruk_jit_new(&settings, &jit));
    code(jit);
    replacement(jit);
    migration(jit);
    removal(jit);
    dylibs(jit);
    numbers(jit);
    uruk_jit_free(jit);
    recorded();
    puts("passed");
    return 0;
}
