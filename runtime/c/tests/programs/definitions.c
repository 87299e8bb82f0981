/* What the host makes when it is asked: generators, units, lookups that wait, events. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

typedef int64_t (*nullary)(void);

static int dropped;

static void drop(void *context)
{
    (void)context;
    __atomic_fetch_add(&dropped, 1, __ATOMIC_RELEASE);
}

/* Functions that return the number they are named after. */
static void generate(void *context, uruk_generator_request *ask)
{
    uruk_dylib *dylib = uruk_generator_request_dylib(ask);
    uruk_names *missing = uruk_generator_request_missing(ask, 0);
    uruk_error *error = NULL;
    size_t index;

    ++*(int *)context;
    for (index = 0; index < uruk_names_count(missing); ++index) {
        const char *name = uruk_names_at(missing, index);
        char ir[128];
        if (name[0] == 'n' && strlen(name) < 8) {
            sprintf(ir, "define i64 @%s() { ret i64 %ld }", name, atol(name + 1));
            FINE(uruk_dylib_add_ir(dylib, name, ir));
        } else if (name[0] == 'x') {
            error = uruk_error_new("no names with x");
        }
    }
    uruk_names_free(missing);
    uruk_dylib_free(dylib);
    FINE(uruk_generator_request_finish(ask, error));
}

static void generators(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_generator *generator;
    uruk_function function;
    uint64_t address;
    int asked = 0;

    FINE(uruk_dylib_add_generator(dylib, generate, &asked, drop, &generator));
    FINE(uruk_dylib_function(dylib, "n42", "i64 ()", &function));
    CHECK(((nullary)function)() == 42);
    CHECK(asked == 1);
    FAILS(uruk_dylib_lookup(dylib, "x1", &address), URUK_ERROR_SESSION, "no names with x");
    CHECK(uruk_generator_remove(generator) == 1);
    CHECK(uruk_generator_remove(generator) == 0);
    uruk_generator_free(generator);
    CHECK(dropped == 1);
    FAILS(uruk_dylib_lookup(dylib, "n7", &address), URUK_ERROR_MISSING, "n7");
}

static int64_t table[4] = {0, 1, 4, 9};
static int made;
static int improved;

static int64_t slow(void)
{
    return 41;
}

static int64_t quick(void)
{
    return 42;
}

static void materialize(void *context, uruk_responsibility *responsibility)
{
    uruk_names *symbols = uruk_responsibility_symbols(responsibility);
    uruk_definition definition;

    ++made;
    CHECK(context == &made);
    CHECK(uruk_names_count(symbols) == 1);
    definition.name = uruk_names_at(symbols, 0);
    definition.flags = 0;
    if (strcmp(definition.name, "table") == 0) {
        definition.address = (uint64_t)(uintptr_t)table;
        FINE(uruk_responsibility_resolve(responsibility, &definition, 1));
        FINE(uruk_responsibility_emit(responsibility, NULL, 0));
    } else if (strcmp(definition.name, "answer") == 0) {
        definition.address = (uint64_t)(uintptr_t)slow;
        FINE(uruk_responsibility_publish(responsibility, &definition, 1, NULL, 0));
    } else {
        FINE(uruk_responsibility_fail(responsibility, "it is out of stock", NULL));
    }
    uruk_names_free(symbols);
}

static void improve(void *context, uruk_reoptimize_request *improvement)
{
    char *name = uruk_reoptimize_request_function(improvement);
    CHECK(context == &made);
    CHECK(strcmp(name, "answer") == 0);
    uruk_string_free(name);
    ++improved;
    if (uruk_reoptimize_request_tier(improvement) == 2) {
        FINE(uruk_reoptimize_request_resolve(improvement, (uint64_t)(uintptr_t)quick));
    } else {
        uruk_reoptimize_request_decline(improvement);
    }
}

static uruk_error *define(const uruk_dylib *dylib, const char *name, int flags)
{
    uruk_definition symbol;
    uruk_unit unit;

    symbol.name = name;
    symbol.address = 0;
    symbol.flags = flags;
    memset(&unit, 0, sizeof unit);
    unit.size = sizeof unit;
    unit.name = name;
    unit.symbols = &symbol;
    unit.symbol_count = 1;
    unit.materialize = materialize;
    unit.improve = improve;
    unit.context = &made;
    unit.drop = drop;
    return uruk_dylib_define_unit(dylib, &unit);
}

static void units(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_function function;
    uint64_t address;

    dropped = 0;
    FINE(define(dylib, "table", URUK_FLAG_EXPORTED));
    FINE(define(dylib, "answer", URUK_FLAG_EXPORTED | URUK_FLAG_CALLABLE));
    FINE(define(dylib, "broken", URUK_FLAG_EXPORTED));
    FAILS(define(dylib, "table", URUK_FLAG_EXPORTED), URUK_ERROR_DUPLICATE, "table");
    FAILS(define(dylib, "odd", 1 << 20), URUK_ERROR_ARGUMENT, "flags");
    CHECK(dropped == 2);
    CHECK(made == 0);
    FINE(uruk_dylib_add_ir(dylib, "squares",
                           "@table = external global [4 x i64]\n"
                           "define i64 @three() {\n"
                           "  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 3\n"
                           "  %v = load i64, ptr %p\n"
                           "  ret i64 %v\n"
                           "}\n"));
    FINE(uruk_dylib_function(dylib, "three", "i64 ()", &function));
    CHECK(((nullary)function)() == 9);
    FINE(uruk_dylib_function(dylib, "answer", NULL, &function));
    CHECK(((nullary)function)() == 41);
    FINE(uruk_dylib_compile(dylib, "answer", 2));
    CHECK(((nullary)function)() == 42);
    FAILS(uruk_dylib_compile(dylib, "answer", 3), URUK_ERROR_REFUSED, "answer");
    CHECK(improved == 2);
    FAILS(uruk_dylib_lookup(dylib, "broken", &address), URUK_ERROR_SESSION, "out of stock");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int answered;
static uint64_t found[2];

static void done(void *context, uruk_error *error, const uint64_t *addresses, size_t count)
{
    CHECK(error == NULL && count == 2 && context == &answered);
    pthread_mutex_lock(&lock);
    found[0] = addresses[0];
    found[1] = addresses[1];
    answered = 1;
    pthread_mutex_unlock(&lock);
}

static void lookups(uruk_jit *jit)
{
    const char *names[2];
    char weak[2] = {0, 1};
    uint64_t addresses[2];
    uint64_t alone;
    uruk_place order;
    uruk_lookup lookup;
    uruk_definition flags[2];

    memset(&lookup, 0, sizeof lookup);
    lookup.size = sizeof lookup;
    order.dylib = uruk_jit_main(jit);
    order.sees = URUK_SEES_ALL;
    lookup.order = &order;
    lookup.order_count = 1;
    names[0] = "three";
    names[1] = "nobody";
    lookup.names = names;
    lookup.name_count = 2;
    FAILS(uruk_jit_lookup(jit, &lookup, addresses), URUK_ERROR_MISSING, "nobody");
    lookup.weak = weak;
    FINE(uruk_jit_lookup(jit, &lookup, addresses));
    FINE(uruk_dylib_lookup(order.dylib, "three", &alone));
    CHECK(addresses[0] == alone && addresses[1] == 0);
    FINE(uruk_jit_lookup_flags(jit, &lookup, flags));
    CHECK(strcmp(flags[0].name, "three") == 0 && flags[1].name == NULL);
    CHECK((flags[0].flags & URUK_FLAG_CALLABLE) != 0);

    /* One that waits for a definition. */
    lookup.weak = NULL;
    lookup.wait_for_missing = 1;
    names[1] = "late";
    FINE(uruk_jit_lookup_async(jit, &lookup, done, &answered));
    pthread_mutex_lock(&lock);
    CHECK(answered == 0);
    pthread_mutex_unlock(&lock);
    FINE(uruk_dylib_add_ir(order.dylib, "late", "@late = global i64 77"));
    FINE(uruk_dylib_lookup(order.dylib, "late", &alone));
    for (;;) {
        int over;
        pthread_mutex_lock(&lock);
        over = answered;
        pthread_mutex_unlock(&lock);
        if (over) {
            break;
        }
    }
    CHECK(found[1] == alone && *(int64_t *)(uintptr_t)alone == 77);
}

static int events[16];
static int errors;

static void on_event(void *context, const uruk_event *event)
{
    CHECK(context == events);
    CHECK(event->size == sizeof *event && event->kind > 0 && event->kind < 16);
    if (event->kind == URUK_EVENT_COMPILED) {
        CHECK(event->function != NULL && event->tier >= 1 && event->tier <= 3);
    }
    pthread_mutex_lock(&lock);
    ++events[event->kind];
    pthread_mutex_unlock(&lock);
}

static void on_error(void *context, const uruk_error *error)
{
    CHECK(context == events && uruk_error_code(error) != 0);
    pthread_mutex_lock(&lock);
    ++errors;
    pthread_mutex_unlock(&lock);
}

static int transformed;

static uruk_error *transform(void *context, const char *name, uruk_bytes *object)
{
    CHECK(context == events && object->size > 64);
    CHECK(memcmp(object->data, "\177ELF", 4) == 0);
    pthread_mutex_lock(&lock);
    ++transformed;
    pthread_mutex_unlock(&lock);
    return strstr(name, "refused") != NULL ? uruk_error_new("it is refused") : NULL;
}

int main(void)
{
    uruk_jit *jit;
    uruk_settings settings;

    uruk_settings_init(&settings, sizeof settings);
    settings.context = events;
    settings.drop_context = drop;
    settings.on_event = on_event;
    settings.on_error = on_error;
    settings.transform_object = transform;
    FINE(uruk_jit_new(&settings, &jit));
    generators(jit);
    units(jit);
    lookups(jit);
    CHECK(transformed > 0);
    dropped = 0;
    uruk_jit_free(jit);
    /* By the last thread of the session, soon after. */
    while (__atomic_load_n(&dropped, __ATOMIC_ACQUIRE) == 0) {
        usleep(1000);
    }
    CHECK(events[URUK_EVENT_COMPILED] > 0 && events[URUK_EVENT_PUBLISHED] > 0);
    puts("passed");
    return 0;
}
