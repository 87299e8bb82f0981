/* What functions take over, give back and leave alone after an error. */
#include "check.h"
#include <unistd.h>

static void counted(void *context)
{
    ++*(int *)context;
}

static void materialize(void *context, uruk_responsibility *responsibility)
{
    (void)context;
    uruk_responsibility_free(responsibility);
}

static uruk_unit unit_of(int *drops)
{
    static uruk_definition symbols[1];
    uruk_unit unit;

    symbols[0].name = "made";
    memset(&unit, 0, sizeof unit);
    unit.size = sizeof unit;
    unit.name = "unit";
    unit.symbols = symbols;
    unit.symbol_count = 1;
    unit.materialize = materialize;
    unit.context = drops;
    unit.drop = counted;
    return unit;
}

/* `drop` is called once, whichever argument was bad. */
static void dropped_once(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    int drops = 0;
    uruk_unit unit = unit_of(&drops);
    uruk_tracker *tracker;
    char large[sizeof(uruk_unit) + 8];

    FAILS(uruk_dylib_define_unit(NULL, &unit), URUK_ERROR_ARGUMENT, "dylib");
    CHECK(drops == 1);
    FAILS(uruk_tracker_define_unit(NULL, &unit), URUK_ERROR_ARGUMENT, "tracker");
    CHECK(drops == 2);
    FAILS(uruk_responsibility_replace(NULL, &unit), URUK_ERROR_ARGUMENT, "responsibility");
    CHECK(drops == 3);
    FAILS(uruk_responsibility_fail(NULL, "why", &unit), URUK_ERROR_ARGUMENT, "responsibility");
    CHECK(drops == 4);
    unit.materialize = NULL;
    FAILS(uruk_dylib_define_unit(dylib, &unit), URUK_ERROR_ARGUMENT, "materialize");
    CHECK(drops == 5);
    unit = unit_of(&drops);
    unit.name = NULL;
    FAILS(uruk_dylib_define_unit(dylib, &unit), URUK_ERROR_ARGUMENT, "name");
    CHECK(drops == 6);
    /* Of a newer header, with a field that is not known. */
    unit = unit_of(&drops);
    unit.size = sizeof large;
    memcpy(large, &unit, sizeof unit);
    memset(large + sizeof unit, 1, 8);
    FAILS(uruk_dylib_define_unit(dylib, (const uruk_unit *)(const void *)large),
          URUK_ERROR_ARGUMENT, "does not know");
    CHECK(drops == 7);
    /* A size that cannot be: nothing of it is read. */
    unit = unit_of(&drops);
    unit.size = (size_t)-1;
    FAILS(uruk_dylib_define_unit(dylib, &unit), URUK_ERROR_ARGUMENT, "size");
    CHECK(drops == 7);
    /* One that was taken. */
    unit = unit_of(&drops);
    FINE(uruk_dylib_create_tracker(dylib, &tracker));
    FINE(uruk_tracker_define_unit(tracker, &unit));
    CHECK(drops == 7);
    FAILS(uruk_dylib_define_unit(dylib, &unit), URUK_ERROR_DUPLICATE, "made");
    CHECK(drops == 8);
    FINE(uruk_tracker_remove(tracker));
    CHECK(drops == 9);
    uruk_tracker_free(tracker);

    FAILS(uruk_dylib_add_generator(NULL, NULL, &drops, counted, NULL), URUK_ERROR_ARGUMENT, "");
    CHECK(drops == 10);
    FAILS(uruk_dylib_reexport_all(dylib, NULL, 0, NULL, &drops, counted, NULL), URUK_ERROR_ARGUMENT,
          "source: a null pointer");
    CHECK(drops == 11);
    FAILS(uruk_dylib_add_library(NULL, NULL, NULL, &drops, counted, NULL), URUK_ERROR_ARGUMENT,
          "dylib");
    CHECK(drops == 12);
    FAILS(uruk_tracker_attach(NULL, &drops, counted), URUK_ERROR_ARGUMENT, "tracker");
    CHECK(drops == 13);
}

static void ignored(void *context, const uruk_error *error)
{
    (void)context;
    (void)error;
}

/* `drop_context` goes with the session, whether a callback is set or not. */
static void context_of_settings(int with_callback)
{
    uruk_settings settings;
    uruk_jit *jit;
    uruk_dylib *other;
    int drops = 0, turn;

    uruk_settings_init(&settings, sizeof settings);
    settings.context = &drops;
    settings.drop_context = counted;
    settings.on_error = with_callback ? ignored : NULL;
    FINE(uruk_jit_new(&settings, &jit));
    CHECK(drops == 0);
    FINE(uruk_jit_create_dylib(jit, "other", &other));
    uruk_jit_free(jit);
    CHECK(drops == 0);
    uruk_dylib_free(other);
    /* By the last thread of the session. */
    for (turn = 0; turn < 10000 && *(volatile int *)&drops == 0; ++turn) {
        usleep(1000);
    }
    CHECK(drops == 1);
    FAILS(uruk_jit_new(&settings, NULL), URUK_ERROR_ARGUMENT, "jit");
    CHECK(drops == 2);
    settings.tiers = 9;
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "9");
    CHECK(drops == 3);
}

/* Errors call an argument as the header does. */
static void names_of_arguments(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    const uruk_dylib *none[1] = {NULL};
    uruk_place place = {NULL, 0};
    uruk_tracker *tracker;
    uruk_lookup lookup;
    uruk_program_options options;
    uruk_program *program = NULL;
    const char *names[1] = {"f"};
    uint64_t address;

    FAILS(uruk_dylib_add_to_link_order(dylib, NULL), URUK_ERROR_ARGUMENT, "other: a null pointer");
    FAILS(uruk_dylib_remove_from_link_order(dylib, NULL), URUK_ERROR_ARGUMENT, "other: a null");
    FAILS(uruk_dylib_replace_in_link_order(dylib, NULL, dylib, 0), URUK_ERROR_ARGUMENT, "old: a");
    FAILS(uruk_dylib_replace_in_link_order(dylib, dylib, NULL, 0), URUK_ERROR_ARGUMENT, "new_one: a");
    FAILS(uruk_dylib_reexport(dylib, NULL, 0, NULL, 0), URUK_ERROR_ARGUMENT, "source: a null");
    FAILS(uruk_dylib_set_link_order(dylib, &place, 1), URUK_ERROR_ARGUMENT, "dylib of order");
    FAILS(uruk_jit_remove_dylibs(jit, none, 1, 0), URUK_ERROR_ARGUMENT, "dylib of dylibs");
    FINE(uruk_dylib_default_tracker(dylib, &tracker));
    FAILS(uruk_tracker_transfer(tracker, NULL), URUK_ERROR_ARGUMENT, "other: a null pointer");
    uruk_tracker_free(tracker);

    memset(&lookup, 0, sizeof lookup);
    lookup.size = sizeof lookup;
    place.dylib = dylib;
    lookup.order = &place;
    lookup.order_count = 1;
    lookup.names = names;
    lookup.name_count = 1;
    lookup.reserved = 1;
    FAILS(uruk_jit_lookup(jit, &lookup, &address), URUK_ERROR_ARGUMENT, "reserved: it must be 0");
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.reserved = 5;
    FAILS(uruk_program_load(jit, names, 1, &options, &program), URUK_ERROR_ARGUMENT, "reserved");
    CHECK(program == NULL);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* A file that is there outlives an error, and is replaced by a whole one. */
static void timeline(const char *folder)
{
    char path[4096], read[64] = {0};
    uruk_settings settings;
    uruk_jit *jit;
    FILE *file;

    CHECK((size_t)snprintf(path, sizeof path, "%s/timeline.json", folder) < sizeof path);
    write_file(path, "old");
    FINE(uruk_jit_new(NULL, &jit));
    FAILS(uruk_jit_trace(jit, path), URUK_ERROR_ARGUMENT, "record");
    uruk_jit_free(jit);
    file = fopen(path, "r");
    CHECK(file != NULL && fread(read, 1, sizeof read, file) == 3 && strcmp(read, "old") == 0);
    CHECK(fclose(file) == 0);
    uruk_settings_init(&settings, sizeof settings);
    settings.record = 1;
    FINE(uruk_jit_new(&settings, &jit));
    FINE(uruk_jit_trace(jit, path));
    uruk_jit_free(jit);
    file = fopen(path, "r");
    CHECK(file != NULL && fread(read, 1, 2, file) == 2 && memcmp(read, "old", 2) != 0);
    CHECK(fclose(file) == 0);
    CHECK(unlink(path) == 0);
}

/* Code has no place in the dylib of the process. */
static void process_dylib(uruk_jit *jit)
{
    static const char *const weak = "define weak i32 @f() { ret i32 1 }";
    uruk_dylib *process;
    uruk_tracker *tracker;

    FINE(uruk_jit_process(jit, &process));
    FAILS(uruk_dylib_add_ir(process, "m", weak), URUK_ERROR_REFUSED, "the dylib of the process");
    FAILS(uruk_dylib_add_ir(process, "m", "define i32 @g() { ret i32 1 }"), URUK_ERROR_REFUSED,
          "the dylib of the process");
    FINE(uruk_dylib_create_tracker(process, &tracker));
    FAILS(uruk_tracker_add_ir(tracker, "m", weak), URUK_ERROR_REFUSED, "the dylib of the process");
    uruk_tracker_free(tracker);
    uruk_dylib_free(process);
}

static const uruk_dylib *foreign;

/* Says that `made` needs a symbol of another session. */
static void depends(void *context, uruk_responsibility *responsibility)
{
    const char *symbols[1] = {"made"}, *dependences[1] = {"far"};
    uruk_dependence_group group;
    uruk_definition definition = {"made", 0, URUK_FLAG_EXPORTED};

    definition.address = (uint64_t)(size_t)context;
    group.symbols = symbols;
    group.symbol_count = 1;
    group.dylibs = &foreign;
    group.dependences = dependences;
    group.dependence_count = 1;
    FINE(uruk_responsibility_resolve(responsibility, &definition, 1));
    FAILS(uruk_responsibility_emit(responsibility, &group, 1), URUK_ERROR_SESSION,
          "dylib other belongs to another session");
    ++*(int *)context;
}

static void other_sessions(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_jit *second;
    uruk_dylib *own, *other;
    uruk_unit unit;
    uint64_t address;
    int asked = 0;

    /* Both dylibs have one number. */
    FINE(uruk_jit_new(NULL, &second));
    FINE(uruk_jit_create_dylib(jit, "own", &own));
    FINE(uruk_jit_create_dylib(second, "other", &other));
    FINE(uruk_dylib_define_address(own, "far", (uint64_t)(size_t)&asked));
    foreign = other;
    unit = unit_of(&asked);
    unit.drop = NULL;
    unit.materialize = depends;
    FINE(uruk_dylib_define_unit(dylib, &unit));
    FAILS(uruk_dylib_lookup(dylib, "made", &address), URUK_ERROR_SESSION, "made");
    CHECK(asked == 1);
    FAILS(uruk_dylib_add_to_link_order(dylib, other), URUK_ERROR_SESSION, "another session");
    uruk_dylib_free(own);
    uruk_dylib_free(other);
    uruk_jit_free(second);
}

static void fails(void *context, uruk_generator_request *ask)
{
    (void)context;
    FINE(uruk_generator_request_finish(ask, uruk_error_new("the store of symbols is closed")));
}

/* A generator's error is that of what asked it. */
static void texts_of_generators(uruk_jit *jit)
{
    static const char *const ir = "declare i32 @stored()\n"
                                  "define i32 @uses() { %v = call i32 @stored() ret i32 %v }\n";
    uruk_dylib *dylib;
    uint64_t address;

    FINE(uruk_jit_create_dylib(jit, "generated", &dylib));
    FINE(uruk_dylib_add_generator(dylib, fails, NULL, NULL, NULL));
    FAILS(uruk_dylib_lookup(dylib, "stored", &address), URUK_ERROR_SESSION,
          "the store of symbols is closed");
    FAILS(uruk_dylib_add_ir(dylib, "m", ir), URUK_ERROR_SESSION, "the store of symbols is closed");
    uruk_dylib_free(dylib);
}

int main(int count, char **arguments)
{
    uruk_jit *jit;

    CHECK(count == 2);
    FINE(uruk_jit_new(NULL, &jit));
    dropped_once(jit);
    names_of_arguments(jit);
    process_dylib(jit);
    other_sessions(jit);
    texts_of_generators(jit);
    uruk_jit_free(jit);
    context_of_settings(0);
    context_of_settings(1);
    timeline(arguments[1]);
    puts("passed");
    return 0;
}
