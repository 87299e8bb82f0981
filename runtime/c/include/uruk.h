/* Uruk for C and C++: a lazy, tiered JIT runtime for LLVM IR.
 *
 * Most functions answer an error, or null if all went well. It is freed by `uruk_error_free`; what
 * they make goes where the last argument points, and is null or as before after an error.
 *
 * What each asks of its caller:
 *
 * 1. A pointer is null, or leads to what its type says, for as long as the call runs. Texts are
 *    UTF-8 and end with a zero byte. A null pointer where one is needed is an error.
 * 2. A handle came from this library and was not freed. Handles may be used by several threads at
 *    once, but for that which frees them. Responsibilities, improvements and questions of
 *    generators are used by one thread at a time.
 * 3. Callbacks come back: they leave by no exception and no `longjmp`. (Functions that JIT'd code
 *    calls may, over JIT'd code and `uruk_callable_call`, or end the guarded call by `uruk_raise`.)
 *    They may be called on any thread, by several at once. What `context` leads to lives until it
 *    is dropped: once, also after an error, whichever argument was in the way.
 * 4. Code that is added may be run in this process, and addresses that are defined hold what code
 *    takes their names for.
 *
 * Structs that begin with `size` are to be zeroed, given their size, and filled in: a program that
 * was compiled with an older header runs with a newer library.
 *
 * Functions of a session are called through pointers: casting them from `uruk_function` is what a
 * C compiler lets pass without a word. Exceptions of C++ pass through JIT'd code.
 *
 * This file is made of the sources of the library. */
#ifndef URUK_H
#define URUK_H

#include <stddef.h>
#include <stdint.h>

/* An error that is dropped is lost. */
#if defined(__GNUC__)
#define URUK_MUST_USE __attribute__((warn_unused_result))
#else
#define URUK_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Major version of the interface that a header declares.
 */
#define URUK_VERSION_MAJOR 0

/**
 * Minor version. While the major version is 0, a change of it may break what was compiled
 * before.
 */
#define URUK_VERSION_MINOR 1

/**
 * Patch.
 */
#define URUK_VERSION_PATCH 0

/**
 * No value: `void`.
 */
#define URUK_VALUE_VOID 0

/**
 * `i1`: 0 or 1 in `bits.integer`.
 */
#define URUK_VALUE_I1 1

/**
 * `i8`, in `bits.integer`.
 */
#define URUK_VALUE_I8 2

/**
 * `i16`, in `bits.integer`.
 */
#define URUK_VALUE_I16 3

/**
 * `i32`, in `bits.integer`.
 */
#define URUK_VALUE_I32 4

/**
 * `i64`, in `bits.integer`.
 */
#define URUK_VALUE_I64 5

/**
 * `float`, in `bits.real`.
 */
#define URUK_VALUE_FLOAT 6

/**
 * `double`, in `bits.real`.
 */
#define URUK_VALUE_DOUBLE 7

/**
 * `ptr`, in `bits.pointer`.
 */
#define URUK_VALUE_PTR 8

/**
 * An argument cannot be used: null, not UTF-8, an unknown number, a struct of a wrong size.
 */
#define URUK_ERROR_ARGUMENT 1

/**
 * A fault of the library's own, caught at its border.
 */
#define URUK_ERROR_PANIC 2

/**
 * A file cannot be read, or is nothing that is known.
 */
#define URUK_ERROR_FILE 3

/**
 * No memory, address space, thread or the like.
 */
#define URUK_ERROR_ROOM 4

/**
 * IR or bitcode that is not valid, or does not compile.
 */
#define URUK_ERROR_CODE 5

/**
 * An object that cannot be linked.
 */
#define URUK_ERROR_LINK 6

/**
 * Two definitions of one name.
 */
#define URUK_ERROR_DUPLICATE 7

/**
 * Symbols that nothing defines; they are the error's names.
 */
#define URUK_ERROR_MISSING 8

/**
 * A function has another type.
 */
#define URUK_ERROR_SIGNATURE 9

/**
 * The name is not one of a function that is compiled here.
 */
#define URUK_ERROR_NOT_A_FUNCTION 10

/**
 * Functions could not be replaced; nothing has changed.
 */
#define URUK_ERROR_REPLACE 11

/**
 * The session refused a definition or could not answer a lookup.
 */
#define URUK_ERROR_SESSION 12

/**
 * It cannot be done as things are: in use, being removed, too late.
 */
#define URUK_ERROR_REFUSED 13

/**
 * A callback of the host said that something is wrong.
 */
#define URUK_ERROR_CALLBACK 14

/**
 * A shared library cannot be opened.
 */
#define URUK_ERROR_LIBRARY 15

/**
 * An input was not let in by a session for untrusted ones.
 */
#define URUK_ERROR_UNTRUSTED 16

/**
 * Anything else.
 */
#define URUK_ERROR_OTHER 17

/**
 * A guarded call did not return; `uruk_error_trap` says why, and the error's names are a
 * backtrace.
 */
#define URUK_ERROR_TRAP 18

/**
 * A version was compiled and linked.
 */
#define URUK_EVENT_COMPILED 1

/**
 * A first call was answered.
 */
#define URUK_EVENT_ANSWERED 2

/**
 * Calls run this version from now on.
 */
#define URUK_EVENT_PUBLISHED 3

/**
 * A version could not be compiled; `message` says why.
 */
#define URUK_EVENT_FAILED 4

/**
 * A version was ready too late.
 */
#define URUK_EVENT_DROPPED 5

/**
 * A compile was ended early.
 */
#define URUK_EVENT_CANCELLED 6

/**
 * A version turned out worse than the one before, which runs again.
 */
#define URUK_EVENT_REVERTED 7

/**
 * Code went because it was not used.
 */
#define URUK_EVENT_EVICTED 8

/**
 * Sampling began, or could not; `message` is the source.
 */
#define URUK_EVENT_SAMPLING 9

/**
 * A worker was given up; `message` says why.
 */
#define URUK_EVENT_WORKER_LOST 10

/**
 * All memory is searched for stacks from now on; `message` says why.
 */
#define URUK_EVENT_STACKS_SEARCHED 11

/**
 * Two codes of a function were compared: `version` stays, and `message` says what was tried and what
 * came out.
 */
#define URUK_EVENT_TUNED 12

/**
 * The time that a tuned function takes has changed: its codes are compared again.
 */
#define URUK_EVENT_DRIFTED 13

/**
 * Code of no more use is not freed, from now on or as long as a call of the system is refused;
 * `message` says why.
 */
#define URUK_EVENT_CODE_STAYS 14

/**
 * As one symbol of linked code needs another.
 */
#define URUK_LOOKUP_STATIC 0

/**
 * As `dlsym` does.
 */
#define URUK_LOOKUP_DLSYM 1

/**
 * A strong definition replaces it until a lookup has found it.
 */
#define URUK_FLAG_WEAK 1

/**
 * A tentative definition.
 */
#define URUK_FLAG_COMMON 2

/**
 * Visible to lookups that see exported symbols only.
 */
#define URUK_FLAG_EXPORTED 4

/**
 * A function; of a unit: one that gets a stub and is made by its first call.
 */
#define URUK_FLAG_CALLABLE 8

/**
 * A number rather than a place in memory.
 */
#define URUK_FLAG_ABSOLUTE 16

/**
 * Has no address: stands for the effect of making it.
 */
#define URUK_FLAG_SIDE_EFFECTS_ONLY 32

/**
 * Lookups see what is exported.
 */
#define URUK_SEES_EXPORTED 0

/**
 * Lookups see everything, as the dylib itself does.
 */
#define URUK_SEES_ALL 1

/**
 * The dylib does not define the symbol.
 */
#define URUK_STATE_NONE 0

/**
 * No lookup has requested it yet.
 */
#define URUK_STATE_NEVER_SEARCHED 1

/**
 * It is being made.
 */
#define URUK_STATE_MATERIALIZING 2

/**
 * It has its address, and is not to be touched yet.
 */
#define URUK_STATE_RESOLVED 3

/**
 * It is in memory, and waits for what it depends on.
 */
#define URUK_STATE_EMITTED 4

/**
 * It can be used.
 */
#define URUK_STATE_READY 5

/**
 * It could not be made.
 */
#define URUK_STATE_FAILED 6

/**
 * No statistics at the end.
 */
#define URUK_STATS_NONE 0

/**
 * Statistics as a table.
 */
#define URUK_STATS_TABLE 1

/**
 * Statistics as JSON.
 */
#define URUK_STATS_JSON 2

/**
 * The input is IR text.
 */
#define URUK_INPUT_IR 0

/**
 * The input is bitcode.
 */
#define URUK_INPUT_BITCODE 1

/**
 * The input is an ELF object.
 */
#define URUK_INPUT_OBJECT 2

/**
 * The input is a file, whose path `data` is: bitcode, IR text or an object.
 */
#define URUK_INPUT_FILE 3

/**
 * Functions whose code was exchanged.
 */
#define URUK_REPLACED_FUNCTIONS 0

/**
 * Functions that are new.
 */
#define URUK_REPLACED_ADDED 1

/**
 * Functions that were compiled again, because they relied on a body that was replaced.
 */
#define URUK_REPLACED_DEPENDENTS 2

/**
 * Variables that are new.
 */
#define URUK_REPLACED_GLOBALS_ADDED 3

/**
 * Variables that exist and keep their contents.
 */
#define URUK_REPLACED_GLOBALS_KEPT 4

/**
 * Local variables of an object, which begin anew.
 */
#define URUK_REPLACED_LOCALS_NEW 5

/**
 * Constructors of the input that were not run.
 */
#define URUK_REPLACED_CONSTRUCTORS_SKIPPED 6

/**
 * Only frees what is dead.
 */
#define URUK_RECLAIM_SWEEP 0

/**
 * Moves live code together, too.
 */
#define URUK_RECLAIM_EVACUATE 1

/**
 * Functions begin at tier 1, and what is hot moves up: the default.
 */
#define URUK_TIERS_AUTO 0

/**
 * The first source of samples that works: the default.
 */
#define URUK_SAMPLING_AUTO 0

/**
 * Samples by events of perf.
 */
#define URUK_SAMPLING_PERF 1

/**
 * Samples by the software clock of perf.
 */
#define URUK_SAMPLING_CPU_CLOCK 2

/**
 * Samples by timers of threads.
 */
#define URUK_SAMPLING_TIMERS 3

/**
 * No samples.
 */
#define URUK_SAMPLING_OFF 4

/**
 * It was no guarded call that failed.
 */
#define URUK_TRAP_NONE 0

/**
 * A division by zero, or one whose result does not fit.
 */
#define URUK_TRAP_DIVISION 1

/**
 * A floating-point operation, where these trap.
 */
#define URUK_TRAP_FLOATING_POINT 2

/**
 * An instruction that the processor refuses: `llvm.trap`, `abort`-like code.
 */
#define URUK_TRAP_ILLEGAL 3

/**
 * `llvm.debugtrap`.
 */
#define URUK_TRAP_BREAKPOINT 4

/**
 * Memory that is not there.
 */
#define URUK_TRAP_MEMORY 5

/**
 * The stack is used up.
 */
#define URUK_TRAP_STACK_OVERFLOW 6

/**
 * A function of the host raised an error.
 */
#define URUK_TRAP_HOST 7

/**
 * A function that was called has no code.
 */
#define URUK_TRAP_NOT_COMPILED 8

/**
 * `uruk_jit_interrupt`.
 */
#define URUK_TRAP_INTERRUPTED 9

/**
 * The call took longer than its limit.
 */
#define URUK_TRAP_DEADLINE 10

/**
 * Something that this interface has no number for.
 */
#define URUK_TRAP_OTHER 11

/**
 * The call made more passes than its fuel.
 */
#define URUK_TRAP_OUT_OF_FUEL 12

/**
 * The call was not made: it was to have fuel, and its session does not count passes.
 */
#define URUK_TRAP_NOT_COUNTED 13

/**
 * The call was not made: the system refuses a timer for its limit, or memory.
 */
#define URUK_TRAP_REFUSED 14

/**
 * A module of LLVM's C interface: `LLVMModuleRef` leads to one.
 */
typedef struct LLVMOpaqueModule LLVMOpaqueModule;

/**
 * A function whose values are compared with its type at each call.
 */
typedef struct uruk_callable uruk_callable;

/**
 * A named symbol table with a link order, like one dynamic library. Keeps its session alive.
 */
typedef struct uruk_dylib uruk_dylib;

/**
 * An error: a code, a text, and the names it is about.
 */
typedef struct uruk_error uruk_error;

/**
 * Something that makes what a dylib lacks, to be removed by `uruk_generator_remove`.
 */
typedef struct uruk_generator uruk_generator;

/**
 * A lookup inside a generator.
 */
typedef struct uruk_generator_request uruk_generator_request;

/**
 * A session. It lives until this handle and all other handles of it (dylibs, trackers and so
 * on) are freed; then its destructors run, and its memory goes.
 */
typedef struct uruk_jit uruk_jit;

/**
 * Names, in an order that the function says which answers them.
 */
typedef struct uruk_names uruk_names;

/**
 * A program that is loaded and checked, ready to run.
 */
typedef struct uruk_program uruk_program;

/**
 * The question for better code of one function.
 */
typedef struct uruk_reoptimize_request uruk_reoptimize_request;

/**
 * The result of a replacement.
 */
typedef struct uruk_replaced uruk_replaced;

/**
 * The obligation to define what was asked for.
 */
typedef struct uruk_responsibility uruk_responsibility;

/**
 * A stack that threads of the session run on at times.
 */
typedef struct uruk_stack uruk_stack;

/**
 * A thread that makes guarded calls.
 */
typedef struct uruk_thread uruk_thread;

/**
 * The handle by which a set of definitions of one dylib is removed. To free it leaves what is
 * under it to the dylib.
 */
typedef struct uruk_tracker uruk_tracker;

/**
 * The components of a value.
 */
typedef union uruk_bits {
    /**
     * Of integers.
     */
    int64_t integer;
    /**
     * Of floating-point numbers.
     */
    double real;
    /**
     * Of pointers.
     */
    void *pointer;
} uruk_bits;

/**
 * A value that a function is called with, or answers.
 */
typedef struct uruk_value {
    /**
     * One of `URUK_VALUE_...`.
     */
    int kind;
    /**
     * The value.
     */
    union uruk_bits bits;
} uruk_value;

/**
 * A function or a variable of the host's or of a session, whatever its type: to be cast.
 */
typedef void (*uruk_function)(void);

/**
 * A function of the host: it has `count` values, of the kinds that its type says, and writes its own
 * to `result`, kind and bits; nothing where its type says `void`. It answers null, or an error, which
 * is freed and ends the guarded call that JIT'd code called it in.
 */
typedef struct uruk_error *(*uruk_host_body)(void *context,
                                             const struct uruk_value *values,
                                             size_t count,
                                             struct uruk_value *result);

/**
 * A dylib of a link order or of a lookup.
 */
typedef struct uruk_place {
    /**
     * The dylib.
     */
    const struct uruk_dylib *dylib;
    /**
     * One of `URUK_SEES_...`.
     */
    int sees;
} uruk_place;

/**
 * The names to look up, and where to search. A field of zero has its default; `size` is that of
 * this struct.
 */
typedef struct uruk_lookup {
    /**
     * `sizeof(uruk_lookup)`.
     */
    size_t size;
    /**
     * The dylibs to search, in this order.
     */
    const struct uruk_place *order;
    /**
     * How many.
     */
    size_t order_count;
    /**
     * The names. Those that are null are passed over, and have the address 0.
     */
    const char *const *names;
    /**
     * How many.
     */
    size_t name_count;
    /**
     * For each name, 1 if a missing definition is no error; null if it is one for all.
     */
    const char *weak;
    /**
     * 1: an address is enough, what is there need not be ready.
     */
    int resolved;
    /**
     * 1: it waits until what is missing is defined.
     */
    int wait_for_missing;
    /**
     * One of `URUK_LOOKUP_...`, told to generators.
     */
    int kind;
    /**
     * Must be 0.
     */
    int reserved;
} uruk_lookup;

/**
 * A symbol at an address.
 */
typedef struct uruk_definition {
    /**
     * Its name.
     */
    const char *name;
    /**
     * Where it is; of no meaning where a function only asks for flags.
     */
    uint64_t address;
    /**
     * A sum of `URUK_FLAG_...`.
     */
    int flags;
} uruk_definition;

/**
 * A name that stands for another one.
 */
typedef struct uruk_alias {
    /**
     * The new name.
     */
    const char *name;
    /**
     * The target of the alias.
     */
    const char *target;
    /**
     * A sum of `URUK_FLAG_...`.
     */
    int flags;
} uruk_alias;

/**
 * Says whether a name may be found; 0 is no.
 */
typedef int (*uruk_allowed)(void *context, const char *name);

/**
 * How a program is loaded and run. A field of zero is as by default; `size` is that of this
 * struct.
 */
typedef struct uruk_program_options {
    /**
     * `sizeof(uruk_program_options)`.
     */
    size_t size;
    /**
     * The function to start at; `main` if null.
     */
    const char *entry;
    /**
     * Where a timeline for Perfetto is written to at the end, or null.
     */
    const char *trace;
    /**
     * Where a page about the run is written to at the end, or null.
     */
    const char *report;
    /**
     * Where the order of first calls is kept, or null.
     */
    const char *first_calls;
    /**
     * 1: everything is compiled before the program starts.
     */
    int eager;
    /**
     * One of `URUK_STATS_...`, on standard error at the end.
     */
    int stats;
    /**
     * 1: what the program exports counts for the libraries of the process.
     */
    int preempt_libraries;
    /**
     * Must be 0.
     */
    int reserved;
} uruk_program_options;

/**
 * A variable that changes its type: `fill` computes its new bytes from the old ones, while no
 * thread runs code of the replaced set. It must not call the session.
 */
typedef struct uruk_migration {
    /**
     * The variable.
     */
    const char *global;
    /**
     * Called once.
     */
    void (*fill)(void *context, const void *old, size_t old_size, void *new_one, size_t new_size);
} uruk_migration;

/**
 * The functions to replace, and how. A field of zero has its default; `size` is that of this
 * struct.
 */
typedef struct uruk_replacement {
    /**
     * `sizeof(uruk_replacement)`.
     */
    size_t size;
    /**
     * The name of the input in messages; a file's path if null.
     */
    const char *name;
    /**
     * The input.
     */
    const void *data;
    /**
     * Its bytes; 0 for text that ends with a zero byte.
     */
    size_t data_size;
    /**
     * One of `URUK_INPUT_...`.
     */
    int input;
    /**
     * 1: at an instant at which no thread runs old code; calls wait for it.
     */
    int quiescent;
    /**
     * How long they wait at most, in milliseconds; nothing changes if that is too short.
     */
    uint64_t wait_ms;
    /**
     * 1: functions may change their signature.
     */
    int allow_signatures;
    /**
     * 1: functions of objects may be replaced in part.
     */
    int allow_parts;
    /**
     * 1: constructors of the input are run.
     */
    int run_constructors;
    /**
     * How many variables change their type.
     */
    int migration_count;
    /**
     * Those.
     */
    const struct uruk_migration *migrations;
    /**
     * The host's own, for `fill`. It need not live longer than the call.
     */
    void *context;
    /**
     * 1: who is in a loop goes on in the new body, where that has a loop with variables of the
     * same names and types; `uruk_replaced_loops` says who cannot.
     */
    int osr;
} uruk_replacement;

/**
 * Symbols of a responsibility with what each of them uses.
 */
typedef struct uruk_dependence_group {
    /**
     * The symbols.
     */
    const char *const *symbols;
    /**
     * How many.
     */
    size_t symbol_count;
    /**
     * The dylibs of what they use.
     */
    const struct uruk_dylib *const *dylibs;
    /**
     * The names of what they use.
     */
    const char *const *dependences;
    /**
     * How many.
     */
    size_t dependence_count;
} uruk_dependence_group;

/**
 * Something that defines symbols when they are asked for. A field of zero is as by default;
 * `size` is that of this struct.
 *
 * A symbol that is flagged callable gets a stub: its name is ready at once, and its first call
 * calls `materialize`; others are materialized by their first lookup.
 */
typedef struct uruk_unit {
    /**
     * `sizeof(uruk_unit)`.
     */
    size_t size;
    /**
     * For messages.
     */
    const char *name;
    /**
     * The symbols with their flags.
     */
    const struct uruk_definition *symbols;
    /**
     * How many.
     */
    size_t symbol_count;
    /**
     * That of them which stands for running initializers, or null.
     */
    const char *init;
    /**
     * Defines what it is responsible for, now or later: it has to end the responsibility. Called
     * at most once.
     */
    void (*materialize)(void *context, struct uruk_responsibility *responsibility);
    /**
     * Another definition of a symbol was chosen; or null.
     */
    void (*discard)(void *context, const char *symbol);
    /**
     * Makes better code of a function that is hot, now or later: it has to end the improvement.
     * Null if there is none.
     */
    void (*improve)(void *context, struct uruk_reoptimize_request *improvement);
    /**
     * The host's own.
     */
    void *context;
    /**
     * Called once, when nothing of the above is called any more: at once where the unit was not
     * taken, whichever argument was in the way (but for a `size` that cannot be).
     */
    void (*drop)(void *context);
} uruk_unit;

/**
 * One thing that happened. Fields that say nothing about it are zero or null.
 */
typedef struct uruk_event {
    /**
     * Bytes of it that the library filled in.
     */
    size_t size;
    /**
     * Nanoseconds since the start of the session.
     */
    uint64_t at_ns;
    /**
     * The version, unique in the session.
     */
    uint64_t version;
    /**
     * Bytes of code.
     */
    uint64_t bytes;
    /**
     * Time that compiling and linking took, in nanoseconds.
     */
    uint64_t took_ns;
    /**
     * The function.
     */
    const char *function;
    /**
     * The kind of the event.
     */
    const char *message;
    /**
     * One of `URUK_EVENT_...`.
     */
    int kind;
    /**
     * 1, 2 or 3; 0 for none.
     */
    int tier;
    /**
     * The tier of the version that ran before; 0 for none.
     */
    int replaced_tier;
    /**
     * 1 if the code goes on with a loop of the function.
     */
    int continues;
} uruk_event;

/**
 * Bytes of an object: the callback's to read, or to be freed by `release`.
 */
typedef struct uruk_bytes {
    /**
     * The bytes.
     */
    const void *data;
    /**
     * How many.
     */
    size_t size;
    /**
     * Called with `data` once they were copied; or null.
     */
    void (*release)(const void *data);
} uruk_bytes;

/**
 * Settings of a session; a field of zero is as by default. `size` is that of this struct.
 *
 * Callbacks have `context` as their first argument, may be called on any thread and by several
 * at once, and not after `drop_context`, which is called once, whether there are callbacks or not: by
 * the last thread of the session, soon after its last handle was freed; at once if the session
 * could not be made, whatever was wrong (but for a `size` that cannot be).
 */
typedef struct uruk_settings {
    /**
     * `sizeof(uruk_settings)`.
     */
    size_t size;
    /**
     * Threads that compile for first calls. Default: as many as processors.
     */
    size_t jobs;
    /**
     * Limit of bytes for code and data. Default: none.
     */
    size_t memory_limit;
    /**
     * Bytes of code that functions may have: beyond, code that is not used goes, and is
     * compiled again by its next call. Default: no limit.
     */
    uint64_t code_budget;
    /**
     * Bytes of room for variables. Default: enough for most.
     */
    size_t static_data;
    /**
     * `URUK_TIERS_AUTO`, or 1, 2 or 3: all functions at that tier.
     */
    int tiers;
    /**
     * 1: LLVM compiles at tier 1, too, instead of the baseline compiler.
     */
    int baseline_off;
    /**
     * 1: tiers 2 and 3 may fuse multiplications and additions.
     */
    int contract;
    /**
     * 1: idle processors compile ahead what is likely to be called next.
     */
    int speculate;
    /**
     * 1: no function of one module is inlined into another.
     */
    int modules_apart;
    /**
     * 1: code and data lie below 2 GiB.
     */
    int low_addresses;
    /**
     * 1: each module is compiled whole by the first call of one of its functions.
     */
    int whole_modules;
    /**
     * Where samples come from: one of `URUK_SAMPLING_...`.
     */
    int sampling;
    /**
     * 1: the statistics tell where time went.
     */
    int time_parts;
    /**
     * 1: perf's map of names is written.
     */
    int perf_map;
    /**
     * 1: debuggers are told of code.
     */
    int gdb;
    /**
     * 1: inputs are read in a child process first, within limits.
     */
    int untrusted;
    /**
     * How long that child may take, in milliseconds; of the clock. Default: a minute.
     */
    uint64_t untrusted_ms;
    /**
     * Bytes of address space it may take. Default: 2 GiB.
     */
    uint64_t untrusted_memory;
    /**
     * Replacements that can be rolled back. Default: 8.
     */
    size_t replacements_kept;
    /**
     * Folder for jitdump files, or null.
     */
    const char *jitdump;
    /**
     * Folder where compiled functions are kept for later runs, or null.
     */
    const char *cache_folder;
    /**
     * The host's own, for the callbacks.
     */
    void *context;
    /**
     * Called when the callbacks are not called any more.
     */
    void (*drop_context)(void *context);
    /**
     * Told of everything that happens; it must not call the session. The event is of no use
     * after the call.
     */
    void (*on_event)(void *context, const struct uruk_event *event);
    /**
     * Called with errors for which no caller waits. The error must not be used after the call.
     */
    void (*on_error)(void *context, const struct uruk_error *error);
    /**
     * Called for a call whose function cannot be compiled (`cause` says why) or was removed
     * (`cause` is null): the call continues in the function that is returned, with its own
     * arguments. Runs on the calling thread, possibly in a signal handler. Without this, and for a
     * null result, a line is written to standard error and the process ends.
     */
    uruk_function (*on_failed_call)(void *context,
                                    const char *function,
                                    const struct uruk_error *cause);
    /**
     * Changes the IR of a function (in a module of its own, where it is called
     * `uruk.body.NAME`) before it is optimized, at each tier; null, or an error of
     * `uruk_error_new`. The module is one of `libLLVM` in the version of
     * `uruk_llvm_version`: only for hosts that link the same.
     */
    struct uruk_error *(*transform_ir)(void *context,
                                       struct LLVMOpaqueModule *module,
                                       const char *function,
                                       int tier);
    /**
     * Changes an object before it is linked: `object` holds it, and is given another one, or
     * left alone. Null, or an error of `uruk_error_new`.
     */
    struct uruk_error *(*transform_object)(void *context,
                                           const char *name,
                                           struct uruk_bytes *object);
    /**
     * 1: code counts its passes at entries and loops, for calls with fuel.
     */
    int count_fuel;
    /**
     * 1: what happens is recorded, for `uruk_jit_report_page` and `uruk_jit_trace`.
     */
    size_t record;
    /**
     * 1: hot functions are compiled in several ways above tier 1, which take turns and are timed, and
     * the fastest stays: `uruk_jit_tuning` tells. Code may then be slower for a moment.
     */
    size_t tune;
    /**
     * Percent of the program's processor time that trials may take which win nothing. Default: 2.
     */
    double tuning_percent;
    /**
     * Time that trials may take before any of it was earned, in milliseconds. Default: 250, or
     * none if `tuned_before` knows functions and the percentage is not set.
     */
    uint64_t tuning_credit_ms;
    /**
     * Results of an earlier run on this machine, by `uruk_jit_tuning_text`, or null. Text that is
     * of no use does no harm. Copied.
     */
    const char *tuned_before;
    /**
     * 1: lines of the source are kept, where the bitcode has them, and stand in the texts of traps.
     * First calls of functions that have them are slower.
     */
    size_t lines;
    /**
     * Is asked of each memory fault of the process first, before the guarded call that it would end: a
     * collector's, whose pages are closed for its barriers. `access` is 0 for a read, 1 for a write, 2
     * for instructions. An answer of 1: the cause is mended, and the instruction runs again; 0: it is
     * another's. Runs in the signal's handler, and may do only what is async-signal-safe. From the
     * first session that says so on it is asked as long as the process lives; there may be 16 of them.
     */
    int (*on_fault)(uint64_t address, int access);
} uruk_settings;

/**
 * Counters of a session. Times are in nanoseconds; those of several threads add up. Arrays by tier
 * hold tier 1 first; tier 0 is native code, which the session did not compile.
 */
typedef struct uruk_stats {
    /**
     * Bytes of it that the library filled in.
     */
    size_t size;
    /**
     * Functions that were defined.
     */
    uint64_t functions;
    /**
     * Functions whose body was compiled.
     */
    uint64_t compiled;
    /**
     * Functions whose body failed to compile.
     */
    uint64_t failed;
    /**
     * Compiles that were ended early.
     */
    uint64_t cancelled;
    /**
     * Functions that wait for a better version, and compiles under way.
     */
    uint64_t queued;
    /**
     * Bytes of code of all versions.
     */
    uint64_t code_bytes;
    /**
     * Versions compiled, by tier.
     */
    uint64_t tier_versions[3];
    /**
     * Functions that run at it now, by tier.
     */
    uint64_t tier_functions[3];
    /**
     * Time that compiling took, by tier.
     */
    uint64_t tier_ns[3];
    /**
     * Functions that the baseline compiler compiled.
     */
    uint64_t baseline_compiled;
    /**
     * Reading symbol tables and binding them.
     */
    uint64_t load_ns;
    /**
     * Compiling and linking data.
     */
    uint64_t data_ns;
    /**
     * Extracting and compiling functions.
     */
    uint64_t emit_ns;
    /**
     * Linking functions.
     */
    uint64_t link_ns;
    /**
     * Since the session was made.
     */
    uint64_t wall_ns;
    /**
     * Samples taken.
     */
    uint64_t samples;
    /**
     * Samples lost.
     */
    uint64_t samples_lost;
    /**
     * Functions compiled before they were called.
     */
    uint64_t ahead_compiled;
    /**
     * Of those, functions that were called.
     */
    uint64_t ahead_called;
    /**
     * Bytes of code that calls reach.
     */
    uint64_t memory_live;
    /**
     * Bytes of code that no call reaches and that is not proved dead yet.
     */
    uint64_t memory_retired;
    /**
     * Bytes of that which a thread may return into.
     */
    uint64_t memory_pinned;
    /**
     * Bytes that code and data take in all.
     */
    uint64_t memory_held;
    /**
     * Bytes of replaced code that were freed.
     */
    uint64_t memory_freed;
    /**
     * Versions evicted because they were not used.
     */
    uint64_t evicted;
    /**
     * Versions of tier 0.
     */
    uint64_t native_versions;
    /**
     * Functions that run at it now.
     */
    uint64_t native_functions;
    /**
     * Bytes of their code, which are no bytes of the session's.
     */
    uint64_t native_bytes;
    /**
     * Trials of the tuner that ended.
     */
    uint64_t tuning_trials;
    /**
     * Those whose candidate was faster.
     */
    uint64_t tuning_won;
    /**
     * Times that a function was looked at again because its load had changed.
     */
    uint64_t tuning_drifted;
    /**
     * Processor time of trials that did not win.
     */
    uint64_t tuning_lost_ns;
    /**
     * Processor time of the program, as far as the tuner looked.
     */
    uint64_t tuning_ran_ns;
} uruk_stats;

/**
 * The version of the library in use, as `major * 1000000 + minor * 1000 + patch`.
 */
int uruk_version(void);

/**
 * The version of the library in use, as text; not to be freed.
 */
const char *uruk_version_text(void);

/**
 * The version of LLVM that the library was built for, as text; not to be freed.
 */
const char *uruk_llvm_version(void);

/**
 * A function to be called with values. `type` is its type as LLVM writes it, needed for functions
 * of objects and units only; null otherwise. `callable` is to be freed, and keeps its session
 * alive.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_callable(const struct uruk_dylib *dylib,
                                       const char *name,
                                       const char *type,
                                       struct uruk_callable **callable);

/**
 * Calls a function. What goes wrong in JIT'd code is an error, of the code `URUK_ERROR_TRAP`: a
 * division by zero, a memory fault, a stack overflow, `limit_ms` (0 is none) passed, and so on;
 * `uruk_error_trap` says which, and the error's names are the functions that it happened in,
 * innermost first. What JIT'd code had under way is left as it is, not unwound. `result` may be
 * null. A function of the host that JIT'd code calls may leave the call by an exception, which
 * passes to the caller, or by a `longjmp` over it.
 */
URUK_MUST_USE
struct uruk_error *uruk_callable_call(const struct uruk_callable *callable,
                                      const struct uruk_value *values,
                                      size_t count,
                                      uint64_t limit_ms,
                                      struct uruk_value *result);

/**
 * As `uruk_callable_call`, with a limit of passes, which ends the same call at the same place each
 * time (`URUK_TRAP_OUT_OF_FUEL`), in a session that counts them (`count_fuel` of its settings).
 */
URUK_MUST_USE
struct uruk_error *uruk_callable_call_with_fuel(const struct uruk_callable *callable,
                                                const struct uruk_value *values,
                                                size_t count,
                                                uint64_t limit_ms,
                                                uint64_t passes,
                                                struct uruk_value *result);

/**
 * Passes that the calling thread has made in code that counts them.
 */
uint64_t uruk_thread_fuel_used(void);

/**
 * The function's type as LLVM writes it, to be freed by `uruk_string_free`.
 */
char *uruk_callable_type(const struct uruk_callable *callable);

/**
 * Frees a callable; nothing for null.
 */
void uruk_callable_free(struct uruk_callable *callable);

/**
 * A handle of the calling thread, to interrupt its guarded calls by; to be freed.
 */
struct uruk_thread *uruk_thread_current(void);

/**
 * Ends the innermost guarded call of a thread by `URUK_TRAP_INTERRUPTED`; 0 if it is in none.
 */
int uruk_jit_interrupt(const struct uruk_jit *jit, const struct uruk_thread *thread);

/**
 * Frees a handle of a thread; nothing for null.
 */
void uruk_thread_free(struct uruk_thread *thread);

/**
 * Frees a handle of a dylib, which goes on to exist; nothing for null.
 */
void uruk_dylib_free(struct uruk_dylib *dylib);

/**
 * Another handle of the session of a dylib, to be freed.
 */
struct uruk_jit *uruk_dylib_jit(const struct uruk_dylib *dylib);

/**
 * The dylib's name, to be freed by `uruk_string_free`.
 */
char *uruk_dylib_name(const struct uruk_dylib *dylib);

/**
 * Adds a module of IR text; `name` is what it is called in messages. Its functions have their
 * addresses at once and are compiled when they are first called.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_ir(const struct uruk_dylib *dylib,
                                     const char *name,
                                     const char *ir);

/**
 * Adds a module of bitcode, which is copied: as `uruk_dylib_add_ir`.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_bitcode(const struct uruk_dylib *dylib,
                                          const char *name,
                                          const void *bytes,
                                          size_t size);

/**
 * Adds a module of LLVM's C interface (`LLVMModuleRef`), which is copied and stays the
 * caller's. It is one of the LLVM that this library uses: for hosts that link the same shared
 * library. Others have `uruk_llvm_add_module` of `uruk-llvm.h`.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_module(const struct uruk_dylib *dylib,
                                         struct LLVMOpaqueModule *module);

/**
 * Adds an ELF object, which is copied, and linked at once.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_object(const struct uruk_dylib *dylib,
                                         const char *name,
                                         const void *bytes,
                                         size_t size);

/**
 * Adds an ELF object, which is copied, and linked when one of its symbols is asked for.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_lazy_object(const struct uruk_dylib *dylib,
                                              const char *name,
                                              const void *bytes,
                                              size_t size);

/**
 * Adds a file: bitcode, IR text, an object or an archive, told by its content.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_file(const struct uruk_dylib *dylib,
                                       const char *path);

/**
 * Adds a static archive: members as they are needed, or all of them (`whole` is 1).
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_archive(const struct uruk_dylib *dylib,
                                          const char *path,
                                          int whole);

/**
 * Gives a name to a variable of the host, which stays there as long as the session is used.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_define_address(const struct uruk_dylib *dylib,
                                             const char *name,
                                             uint64_t address);

/**
 * Gives a name to a function of the host: JIT'd code calls it. `type` is its type as LLVM writes
 * it, `void (i64, ptr)`: modules that declare it otherwise are refused. Null asks for no
 * comparison.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_define_function(const struct uruk_dylib *dylib,
                                              const char *name,
                                              const char *type,
                                              uruk_function function);

/**
 * The address of a symbol: of a function its stub, which stays the same whatever is
 * recompiled.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_lookup(const struct uruk_dylib *dylib,
                                     const char *name,
                                     uint64_t *address);

/**
 * A function to be cast and called. `type` is its type as LLVM writes it, `i64 (i64, ptr)`, and
 * is compared with the IR's; null asks for no comparison. `signext` and `zeroext` need not be in
 * it. Functions of objects and units have none to be compared with.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_function(const struct uruk_dylib *dylib,
                                       const char *name,
                                       const char *type,
                                       uruk_function *function);

/**
 * The type of a function as LLVM writes it, to be freed by `uruk_string_free`; null where it
 * has none that is known. Small integers, results as well, have marks of how they are extended where
 * IR says it: `i16 zeroext (i8 signext)`.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_type(const struct uruk_dylib *dylib,
                                   const char *name,
                                   char **type);

/**
 * Compiles a function now, without calling it: at a tier, or (0) unless it has code.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_compile(const struct uruk_dylib *dylib,
                                      const char *name,
                                      int tier);

/**
 * Keeps a function at a tier, or (0) leaves it to the policy again.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_pin(const struct uruk_dylib *dylib,
                                  const char *name,
                                  int tier);

/**
 * The tier of the code that calls of a function reach; 0 before the first call, and for
 * functions of objects.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_tier(const struct uruk_dylib *dylib,
                                   const char *name,
                                   int *tier);

/**
 * Takes the code of a function away, which its next call compiles again; `evicted`, which may
 * be null, tells whether it had any that may go.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_evict(const struct uruk_dylib *dylib,
                                    const char *name,
                                    int *evicted);

/**
 * Compiles better code for the loops of a function that may be running, and offers it at their
 * heads; `offered`, which may be null, is given how many.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_osr_loops(const struct uruk_dylib *dylib,
                                        const char *name,
                                        size_t *offered);

/**
 * Forbids that loops of a function are left for better code (1), or allows it again (0).
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_forbid_osr(const struct uruk_dylib *dylib,
                                         const char *name,
                                         int forbidden);

/**
 * Says which functions will be called first, in this order; a session that speculates compiles
 * them ahead.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_compile_ahead(const struct uruk_dylib *dylib,
                                            const char *const *functions,
                                            size_t count);

/**
 * Runs the constructors of what was added to this dylib, and before that of what it links
 * against.
 */
URUK_MUST_USE struct uruk_error *uruk_dylib_initialize(const struct uruk_dylib *dylib);

/**
 * Runs what is to be run at the end of this dylib; it can be initialized again.
 */
URUK_MUST_USE struct uruk_error *uruk_dylib_deinitialize(const struct uruk_dylib *dylib);

/**
 * Removes all definitions of the dylib. Its data must not be used any more.
 */
URUK_MUST_USE struct uruk_error *uruk_dylib_clear(const struct uruk_dylib *dylib);

/**
 * The code of an error, one of `URUK_ERROR_...`; 0 for no error.
 */
int uruk_error_code(const struct uruk_error *error);

/**
 * Why a guarded call did not return, one of `URUK_TRAP_...`; 0 for other errors.
 */
int uruk_error_trap(const struct uruk_error *error);

/**
 * The error that a function of the host ended a guarded call by (`uruk_raise`,
 * `uruk_dylib_define_host`), with its own code, text and names; null for other errors. Lives as long
 * as `error`.
 */
const struct uruk_error *uruk_error_cause(const struct uruk_error *error);

/**
 * The text of an error, which names file and symbols. Lives as long as the error.
 */
const char *uruk_error_text(const struct uruk_error *error);

/**
 * How many names an error is about.
 */
size_t uruk_error_name_count(const struct uruk_error *error);

/**
 * A name that an error is about; null beyond the last. Lives as long as the error.
 */
const char *uruk_error_name(const struct uruk_error *error, size_t index);

/**
 * An error of the host's own, for callbacks that answer one and for `uruk_raise`. To be given
 * away, or freed.
 */
URUK_MUST_USE struct uruk_error *uruk_error_new(const char *text);

/**
 * Frees an error; nothing for null.
 */
void uruk_error_free(struct uruk_error *error);

/**
 * How many names a list has.
 */
size_t uruk_names_count(const struct uruk_names *names);

/**
 * A name of a list; null beyond the last. Lives as long as the list.
 */
const char *uruk_names_at(const struct uruk_names *names, size_t index);

/**
 * Frees a list of names; nothing for null.
 */
void uruk_names_free(struct uruk_names *names);

/**
 * Frees a string that a function answered as `char *`; nothing for null.
 */
void uruk_string_free(char *string);

/**
 * Has what a dylib lacks be made by `generate`, after those that were added before. It defines
 * what it can in the dylib and calls `uruk_generator_request_finish`, now or later; not to define anything is
 * no error. `drop` is called once with `context`: when it is not asked any more, or at once after an
 * error. `generator`, which may be null, is given a handle to remove it by, to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_generator(const struct uruk_dylib *dylib,
                                            void (*generate)(void *context,
                                                             struct uruk_generator_request *ask),
                                            void *context,
                                            void (*drop)(void *context),
                                            struct uruk_generator **generator);

/**
 * The dylib that asks, to be freed.
 */
struct uruk_dylib *uruk_generator_request_dylib(const struct uruk_generator_request *ask);

/**
 * The names without a definition so far, to be freed; `required` is 1 for those only that the
 * lookup fails without, 0 for all.
 */
struct uruk_names *uruk_generator_request_missing(const struct uruk_generator_request *ask,
                                                  int required);

/**
 * Why they are looked up: one of `URUK_LOOKUP_...`.
 */
int uruk_generator_request_kind(const struct uruk_generator_request *ask);

/**
 * Does `work` on behalf of the question: who answers elsewhere than within `generate`, and
 * looks something up for it, does so in here.
 */
URUK_MUST_USE
struct uruk_error *uruk_generator_request_scope(const struct uruk_generator_request *ask,
                                                void (*work)(void *context),
                                                void *context);

/**
 * Ends the question: sends the lookup on its way, or fails it by an error, which may be null. What
 * was defined for it has to be in the dylib before. Frees `ask` and `error`, also after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_generator_request_finish(struct uruk_generator_request *ask,
                                                 struct uruk_error *error);

/**
 * Gives a name to a function of the host that can fail: its error ends the guarded call that JIT'd
 * code called it in, with `URUK_TRAP_HOST`, and is the error's `uruk_error_cause`. So do a result of
 * another kind than its type says, and an integer that does not fit. Outside of guarded calls it ends
 * the process with a message. `type` is its type as LLVM writes it, of numbers and pointers; modules
 * that declare it otherwise are refused. `drop` is called once with `context`: when no
 * code can call it any more, or at once after an error, whichever argument was in the way.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_define_host(const struct uruk_dylib *dylib,
                                          const char *name,
                                          const char *type,
                                          uruk_host_body body,
                                          void *context,
                                          void (*drop)(void *context));

/**
 * Ends the guarded call that the calling function runs in by an error: the call's
 * error has `URUK_TRAP_HOST`, and this one is its `uruk_error_cause`. For functions of the host
 * that JIT'd code calls: frames between, of C and JIT'd code, are left as by `longjmp`. It comes
 * back, with `error`, which stays the caller's, where there is no guarded call to be ended:
 * outside of such, and in callbacks of the library. Frees `error` where it does not come back.
 */
URUK_MUST_USE
struct uruk_error *uruk_raise(struct uruk_error *error);

/**
 * The function, as its unit knows it; to be freed by `uruk_string_free`.
 */
char *uruk_reoptimize_request_function(const struct uruk_reoptimize_request *improvement);

/**
 * The dylib that the function is in, to be freed.
 */
struct uruk_dylib *uruk_reoptimize_request_dylib(const struct uruk_reoptimize_request *improvement);

/**
 * How good the code is to be: 1, 2 or 3.
 */
int uruk_reoptimize_request_tier(const struct uruk_reoptimize_request *improvement);

/**
 * Whether the code is no longer wanted: 1 or 0.
 */
int uruk_reoptimize_request_is_cancelled(const struct uruk_reoptimize_request *improvement);

/**
 * Has `release` called with `context` once the version's code is not run any more. It is called
 * once, at once after an error, too.
 */
URUK_MUST_USE
struct uruk_error *uruk_reoptimize_request_attach(struct uruk_reoptimize_request *improvement,
                                                  void *context,
                                                  void (*release)(void *context));

/**
 * Ends the improvement: links an ELF object, which is copied and defines the function. Frees
 * `improvement`, also after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_reoptimize_request_link(struct uruk_reoptimize_request *improvement,
                                                const char *name,
                                                const void *bytes,
                                                size_t size);

/**
 * Ends the improvement: calls go on at an address of the host's own. Frees `improvement`, also
 * after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_reoptimize_request_resolve(struct uruk_reoptimize_request *improvement,
                                                   uint64_t address);

/**
 * Ends the improvement: there is no better code at this tier. Frees `improvement`.
 */
void uruk_reoptimize_request_decline(struct uruk_reoptimize_request *improvement);

/**
 * Ends the improvement: better code cannot be made, for the reason of the text. Frees
 * `improvement`.
 */
void uruk_reoptimize_request_fail(struct uruk_reoptimize_request *improvement,
                                  const char *message);

/**
 * Ends the improvement without a word, which is a failure, and frees it; nothing for null.
 */
void uruk_reoptimize_request_free(struct uruk_reoptimize_request *improvement);

/**
 * Looks names up in one step, and waits for the answer: `addresses` has room for one of each; that
 * of a weak name without a definition is 0.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_lookup(const struct uruk_jit *jit,
                                   const struct uruk_lookup *lookup,
                                   uint64_t *addresses);

/**
 * Looks names up, and calls `done` once: with the addresses in the order of the names, or with an
 * error, which it frees. In this thread if the answer is there already, else in the thread that
 * makes it so. It is not called where this answers an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_lookup_async(const struct uruk_jit *jit,
                                         const struct uruk_lookup *lookup,
                                         void (*done)(void *context,
                                                      struct uruk_error *error,
                                                      const uint64_t *addresses,
                                                      size_t count),
                                         void *context);

/**
 * The flags of names: `found` has room for one of each; the name of one without a definition is
 * null there. Nothing is materialized.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_lookup_flags(const struct uruk_jit *jit,
                                         const struct uruk_lookup *lookup,
                                         struct uruk_definition *found);

/**
 * Has lookups that start in `dylib` go on to `other`.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_to_link_order(const struct uruk_dylib *dylib,
                                                const struct uruk_dylib *other);

/**
 * Sets where lookups that start in `dylib` go on; the process is searched where
 * `uruk_jit_process` stands.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_set_link_order(const struct uruk_dylib *dylib,
                                             const struct uruk_place *order,
                                             size_t count);

/**
 * Takes a dylib out of a link order.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_remove_from_link_order(const struct uruk_dylib *dylib,
                                                     const struct uruk_dylib *other);

/**
 * Puts `new_one` where `old` was in a link order.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_replace_in_link_order(const struct uruk_dylib *dylib,
                                                    const struct uruk_dylib *old,
                                                    const struct uruk_dylib *new_one,
                                                    int sees);

/**
 * The names of the dylibs that a lookup goes on to from `dylib`, in order; to be freed.
 */
struct uruk_names *uruk_dylib_link_order(const struct uruk_dylib *dylib);

/**
 * Removes a dylib and all that is in it, as `uruk_jit_remove_dylibs` does several.
 */
URUK_MUST_USE struct uruk_error *uruk_dylib_remove(const struct uruk_dylib *dylib, int forced);

/**
 * Defines symbols at addresses of the host: all of them, or none.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_define_addresses(const struct uruk_dylib *dylib,
                                               const struct uruk_definition *definitions,
                                               size_t count);

/**
 * Defines names for symbols of `source`, which may be `dylib` itself; `sees` says which of its
 * symbols are found.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_reexport(const struct uruk_dylib *dylib,
                                       const struct uruk_dylib *source,
                                       int sees,
                                       const struct uruk_alias *aliases,
                                       size_t count);

/**
 * Re-exports whatever `source` has, where `allowed` says so. `drop` is called once with `context`:
 * when it is not asked any more, or at once after an error. `generator`, which may be null, is
 * given a handle to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_reexport_all(const struct uruk_dylib *dylib,
                                           const struct uruk_dylib *source,
                                           int sees,
                                           uruk_allowed allowed,
                                           void *context,
                                           void (*drop)(void *context),
                                           struct uruk_generator **generator);

/**
 * Has a dylib find what a shared library exports, where `allowed` says so; with no path, what the
 * process exports and the executable defines. `drop` is called once with `context`: when it is
 * not asked any more, or at once after an error. `generator`, which may be null, is given a handle to be
 * freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_add_library(const struct uruk_dylib *dylib,
                                          const char *path,
                                          uruk_allowed allowed,
                                          void *context,
                                          void (*drop)(void *context),
                                          struct uruk_generator **generator);

/**
 * Removes a generator from its dylib; 1 if it was there. The handle is still to be freed.
 */
int uruk_generator_remove(const struct uruk_generator *generator);

/**
 * Frees a handle of a generator, which goes on to be asked; nothing for null.
 */
void uruk_generator_free(struct uruk_generator *generator);

/**
 * Whether additions may need symbols that are not defined yet (1) or not (0, the default).
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_allow_missing(const struct uruk_dylib *dylib,
                                            int allowed);

/**
 * The symbols that additions need and that are not defined; to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_unresolved(const struct uruk_dylib *dylib,
                                         struct uruk_names **names);

/**
 * Removes symbols, all of them or none.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_undefine(const struct uruk_dylib *dylib,
                                       const char *const *names,
                                       size_t count);

/**
 * How far a symbol of this dylib has come: one of `URUK_STATE_...`.
 */
int uruk_dylib_state(const struct uruk_dylib *dylib, const char *name);

/**
 * Reads files and binds them to one program; `options` may be null for defaults. `program` is to
 * be run, or freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_program_load(const struct uruk_jit *jit,
                                     const char *const *files,
                                     size_t count,
                                     const struct uruk_program_options *options,
                                     struct uruk_program **program);

/**
 * Runs a program on the main thread and ends the process with its status; it comes back only if an
 * argument cannot be used. Arguments begin behind the program's name. Frees `program` where it
 * runs it; it stays as it is after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_program_run(struct uruk_program *program,
                                    const char *const *arguments,
                                    size_t count);

/**
 * Frees a program that is not run; nothing for null.
 */
void uruk_program_free(struct uruk_program *program);

/**
 * Exchanges the code of functions of a dylib while they run: all that the input defines, or
 * nothing. Those that do not exist are added; variables that exist keep their contents.
 * `replaced`, which may be null, is given what was done, to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_replace(const struct uruk_dylib *dylib,
                                      const struct uruk_replacement *replacement,
                                      struct uruk_replaced **replaced);

/**
 * As `uruk_dylib_replace`, of IR text and with all defaults.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_replace_ir(const struct uruk_dylib *dylib,
                                         const char *name,
                                         const char *ir);

/**
 * The names of one kind, of `URUK_REPLACED_...`; to be freed. Null if there is no such kind.
 */
struct uruk_names *uruk_replaced_names(const struct uruk_replaced *replaced, int kind);

/**
 * How long no call of a member could begin, in nanoseconds.
 */
uint64_t uruk_replaced_closed_ns(const struct uruk_replaced *replaced);

/**
 * Goes back to what ran before this replacement, which must be the latest, at its level
 * (`uruk_jit_rollback`).
 */
URUK_MUST_USE struct uruk_error *uruk_replaced_rollback(const struct uruk_replaced *replaced);

/**
 * Which threads still run, or will return into, code that this replaced: a line for each; to
 * be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_replaced_activations(const struct uruk_replaced *replaced,
                                             struct uruk_names **names);

/**
 * The loops that threads were in, if they were to change (`osr`), and the result of each: a line
 * for each; to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_replaced_loops(const struct uruk_replaced *replaced,
                                       struct uruk_names **names);

/**
 * Frees what a replacement did, which stays done; nothing for null.
 */
void uruk_replaced_free(struct uruk_replaced *replaced);

/**
 * The dylib that the symbols are in, to be freed.
 */
struct uruk_dylib *uruk_responsibility_dylib(struct uruk_responsibility *responsibility);

/**
 * The names of the symbols, less those that were passed on; to be freed.
 */
struct uruk_names *uruk_responsibility_symbols(struct uruk_responsibility *responsibility);

/**
 * The names for which lookups wait now; to be freed.
 */
struct uruk_names *uruk_responsibility_requested(struct uruk_responsibility *responsibility);

/**
 * The tracker that the symbols are under now, to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_tracker(struct uruk_responsibility *responsibility,
                                               struct uruk_tracker **tracker);

/**
 * Gives symbols their addresses; what is there need not be ready before
 * `uruk_responsibility_emit`.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_resolve(struct uruk_responsibility *responsibility,
                                               const struct uruk_definition *definitions,
                                               size_t count);

/**
 * Ends the responsibility: all symbols are in memory. Each becomes ready as soon as what its
 * groups name is. Frees `responsibility`, also after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_emit(struct uruk_responsibility *responsibility,
                                            const struct uruk_dependence_group *groups,
                                            size_t count);

/**
 * Ends the responsibility: resolves and emits in one step. Frees `responsibility`, also after an
 * error.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_publish(struct uruk_responsibility *responsibility,
                                               const struct uruk_definition *definitions,
                                               size_t count,
                                               const struct uruk_dependence_group *groups,
                                               size_t group_count);

/**
 * Ends the responsibility: links an ELF object, which is copied and defines the symbols. Frees
 * `responsibility`, also after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_link(struct uruk_responsibility *responsibility,
                                            const char *name,
                                            const void *bytes,
                                            size_t size);

/**
 * Takes on more symbols; `claimed`, which may be null, is given the names of those that were
 * taken, to be freed: weak ones that are defined elsewhere are not.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_claim(struct uruk_responsibility *responsibility,
                                             const struct uruk_definition *definitions,
                                             size_t count,
                                             struct uruk_names **claimed);

/**
 * Splits some of the symbols off into a responsibility of their own, to be ended, too. `delegated`
 * is freed by what ends it.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_delegate(struct uruk_responsibility *responsibility,
                                                const char *const *symbols,
                                                size_t count,
                                                struct uruk_responsibility **delegated);

/**
 * Gives symbols back to another unit, which is asked when they are.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_replace(struct uruk_responsibility *responsibility,
                                               const struct uruk_unit *unit);

/**
 * Has `release` called with `context` once the definitions are removed. It is called once, at once
 * after an error, too.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_attach(struct uruk_responsibility *responsibility,
                                              void *context,
                                              void (*release)(void *context));

/**
 * Ends the responsibility: the symbols cannot be made, for the reason of the text. With a unit (or
 * null), they are tried again by it when they are next asked for. Frees `responsibility`, also
 * after an error.
 */
URUK_MUST_USE
struct uruk_error *uruk_responsibility_fail(struct uruk_responsibility *responsibility,
                                            const char *message,
                                            const struct uruk_unit *again);

/**
 * Ends the responsibility without a word, which is a failure, and frees it; nothing for null.
 */
void uruk_responsibility_free(struct uruk_responsibility *responsibility);

/**
 * The machine code of a function, one instruction a line, with names for the addresses it mentions:
 * of the version that calls reach (0), or of the newest of a tier. Null where there is none such.
 * To be freed by `uruk_string_free`.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_disassemble(const struct uruk_dylib *dylib,
                                          const char *name,
                                          int tier,
                                          char **listing);

/**
 * The IR that machine code of a function is made of at a tier (1, 2 or 3), after all passes. It is
 * compiled for this, and nothing comes of that. To be freed by `uruk_string_free`.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_ir(const struct uruk_dylib *dylib,
                                 const char *name,
                                 int tier,
                                 char **ir);

/**
 * The functions that ran most, by samples, then by counted calls; `count` of them at most. To be
 * freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_hottest(const struct uruk_jit *jit,
                                    size_t count,
                                    struct uruk_names **names);

/**
 * The page of the run so far: a file of HTML that needs nothing else. Of a session whose settings
 * say `record`. To be freed by `uruk_string_free`.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_report_page(const struct uruk_jit *jit,
                                        char **page);

/**
 * Writes the timeline of the run so far to a file: JSON for Perfetto and `chrome://tracing`. A file
 * that is there is replaced by the whole text, or stays as it is after an error. Of a session
 * whose settings say `record`.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_trace(const struct uruk_jit *jit,
                                  const char *path);

/**
 * Makes a session; `settings` may be null for defaults. `jit` is to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_new(const struct uruk_settings *settings,
                                struct uruk_jit **jit);

/**
 * Frees a handle of a session; nothing for null.
 */
void uruk_jit_free(struct uruk_jit *jit);

/**
 * The dylib where most of it happens. Not to be freed: it lives as long as `jit`.
 */
const struct uruk_dylib *uruk_jit_main(const struct uruk_jit *jit);

/**
 * The dylib that stands for the process: what its libraries export. To be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_process(const struct uruk_jit *jit,
                                    struct uruk_dylib **dylib);

/**
 * A new dylib, which searches itself and then the process; to be freed, which does not remove
 * it.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_create_dylib(const struct uruk_jit *jit,
                                         const char *name,
                                         struct uruk_dylib **dylib);

/**
 * A new dylib that searches nothing but itself. To be freed, which does not remove it.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_create_bare_dylib(const struct uruk_jit *jit,
                                              const char *name,
                                              struct uruk_dylib **dylib);

/**
 * The dylib of that name, to be freed; null if there is none.
 */
struct uruk_dylib *uruk_jit_dylib(const struct uruk_jit *jit, const char *name);

/**
 * Removes several dylibs in one step: all of them, or none. With `forced`, dylibs that search
 * them go on without; else that is an error. The handles are still to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_remove_dylibs(const struct uruk_jit *jit,
                                          const struct uruk_dylib *const *dylibs,
                                          size_t count,
                                          int forced);

/**
 * Lets all dylibs that search the process use what a shared library exports.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_add_library(const struct uruk_jit *jit,
                                        const char *name);

/**
 * Runs the constructors of everything that was added since the last call.
 */
URUK_MUST_USE struct uruk_error *uruk_jit_initialize(const struct uruk_jit *jit);

/**
 * Runs the destructors of what `uruk_jit_initialize` initialized.
 */
URUK_MUST_USE struct uruk_error *uruk_jit_deinitialize(const struct uruk_jit *jit);

/**
 * Holds promotions to better tiers (`paused` is 1), or lets them go on (0).
 */
URUK_MUST_USE struct uruk_error *uruk_jit_pause_tiers(const struct uruk_jit *jit, int paused);

/**
 * Holds sampling (`paused` is 1), or lets it go on (0).
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_pause_sampling(const struct uruk_jit *jit,
                                           int paused);

/**
 * Prepares the process for a sandbox that allows only the system calls of the host (seccomp, also
 * for all threads, or strict mode): all functions of all sessions that have no code are compiled,
 * and the threads of the library end. From then on code that is there runs, without a system call of
 * the library's, exceptions pass and guarded calls catch their traps; nothing is compiled any more. To
 * be called before the filter is installed, without locks that the host's callbacks take, and not in
 * such a callback. It cannot be undone.
 */
URUK_MUST_USE
struct uruk_error *uruk_prepare_sandbox(void);

/**
 * Frees dead code now, one of `URUK_RECLAIM_...`, and waits for that at most so many
 * milliseconds; `done`, which may be null, tells whether it was.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_reclaim(const struct uruk_jit *jit,
                                    int kind,
                                    uint64_t limit_ms,
                                    int *done);

/**
 * Evicts code that was not used for longest until no more than `most` bytes are left; how many
 * bytes went.
 */
uint64_t uruk_jit_evict_cold(const struct uruk_jit *jit, uint64_t most);

/**
 * Says that code of the session may run on a stack, as on a fiber's, while no thread is on it. The
 * memory stays readable until `uruk_stack_free`. `stack` is to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_register_stack(const struct uruk_jit *jit,
                                           const void *begin,
                                           size_t size,
                                           struct uruk_stack **stack);

/**
 * Forgets a stack on which no thread continues; nothing for null.
 */
void uruk_stack_free(struct uruk_stack *stack);

/**
 * Goes back to what ran before the latest replacement, at the level of that: after a quiescent one calls wait
 * until no thread runs what goes, as long at most, and nothing changes if that is too short.
 * `names`, which may be null, is given the functions. They are to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_rollback(const struct uruk_jit *jit,
                                     struct uruk_names **names);

/**
 * Goes back as `uruk_jit_rollback` does, at another level: at once, or, if `quiescent` is 1, when no thread
 * runs the code that goes, for which calls wait `wait_ms` milliseconds at most. `names`, which may be null,
 * is given the functions. They are to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_rollback_at(const struct uruk_jit *jit,
                                        int quiescent,
                                        uint64_t wait_ms,
                                        struct uruk_names **names);

/**
 * Replaces functions of the main dylib by those of files whenever one of the files changes,
 * for the rest of the process; what was replaced is said on standard error.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_watch(const struct uruk_jit *jit,
                                  const char *const *files,
                                  size_t count);

/**
 * The functions that were called so far, in the order of their first calls; empty unless the
 * session speculates. To be freed.
 */
struct uruk_names *uruk_jit_first_calls(const struct uruk_jit *jit);

/**
 * The contents of the dylibs at this moment, as text for people. To be freed by
 * `uruk_string_free`.
 */
char *uruk_jit_dump(const struct uruk_jit *jit);

/**
 * Sets `size` bytes of settings to defaults: `uruk_settings_init(&settings, sizeof settings)`.
 */
void uruk_settings_init(struct uruk_settings *settings, size_t size);

/**
 * Reads the counters of a session: `uruk_jit_stats(jit, &stats, sizeof stats)`.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_stats(const struct uruk_jit *jit,
                                  struct uruk_stats *stats,
                                  size_t size);

/**
 * Bytes that the session uses for one purpose, called as in its reports: `code`, `read-only`,
 * `data`, `zeroed`, `unwind`, `stubs`, `bitcode`, `waiting`, `unused`, `runtime`, `tables`; or for all of
 * them: `total`.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_memory(const struct uruk_jit *jit,
                                   const char *purpose,
                                   uint64_t *bytes);

/**
 * A new tracker for definitions of a dylib. To be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_create_tracker(const struct uruk_dylib *dylib,
                                             struct uruk_tracker **tracker);

/**
 * The tracker of what is added without one. To be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_default_tracker(const struct uruk_dylib *dylib,
                                              struct uruk_tracker **tracker);

/**
 * Frees a handle of a tracker; nothing for null.
 */
void uruk_tracker_free(struct uruk_tracker *tracker);

/**
 * As `uruk_dylib_add_ir`, under this tracker.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_add_ir(const struct uruk_tracker *tracker,
                                       const char *name,
                                       const char *ir);

/**
 * As `uruk_dylib_add_bitcode`, under this tracker.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_add_bitcode(const struct uruk_tracker *tracker,
                                            const char *name,
                                            const void *bytes,
                                            size_t size);

/**
 * As `uruk_dylib_add_module`, under this tracker.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_add_module(const struct uruk_tracker *tracker,
                                           struct LLVMOpaqueModule *module);

/**
 * As `uruk_dylib_add_object`, under this tracker.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_add_object(const struct uruk_tracker *tracker,
                                           const char *name,
                                           const void *bytes,
                                           size_t size);

/**
 * As `uruk_dylib_add_file`, under this tracker; but no archives.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_add_file(const struct uruk_tracker *tracker,
                                         const char *path);

/**
 * As `uruk_dylib_define_addresses`, under this tracker.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_define_addresses(const struct uruk_tracker *tracker,
                                                 const struct uruk_definition *definitions,
                                                 size_t count);

/**
 * Has `release` called with `context` once what is under the tracker is removed; at once if it was
 * removed before. It is called once, at once after an error, too.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_attach(const struct uruk_tracker *tracker,
                                       void *context,
                                       void (*release)(void *context));

/**
 * Removes the definitions of the tracker: names at once, code when no thread can return into it.
 * Destructors run on this thread. Addresses of its data must not be used any more. The handle is
 * still to be freed.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_remove(const struct uruk_tracker *tracker);

/**
 * Moves everything to another tracker of the same dylib.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_transfer(const struct uruk_tracker *tracker,
                                         const struct uruk_tracker *other);

/**
 * Whether it was removed, or transferred to another: 1 or 0.
 */
int uruk_tracker_is_defunct(const struct uruk_tracker *tracker);

/**
 * Says that so many units of work were done: requests answered, frames drawn. From the first call on,
 * functions of a session whose settings say `tune` are compared by processor time per unit, instead
 * of per entry of theirs. One atomic addition; nothing where `jit` is null.
 */
void uruk_jit_work_done(const struct uruk_jit *jit,
                        uint64_t units);

/**
 * Results of the tuner so far, for people: a line for each function, and one for each trial of it,
 * those with the most trials first. Empty where the settings do not say `tune`. To be freed by
 * `uruk_string_free`.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_tuning(const struct uruk_jit *jit,
                                   char **lines);

/**
 * The same for the field `tuned_before` of another run's settings on this machine. To be freed by
 * `uruk_string_free`.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_tuning_text(const struct uruk_jit *jit,
                                        char **learned);

/**
 * Writes the text of `uruk_jit_tuning_text` to a file: all of it, or what is there stays.
 */
URUK_MUST_USE
struct uruk_error *uruk_jit_keep_tuning(const struct uruk_jit *jit,
                                        const char *path);

/**
 * Defines what a unit promises: all of it, or nothing. The struct, and its texts and arrays,
 * need not live longer than the call.
 */
URUK_MUST_USE
struct uruk_error *uruk_dylib_define_unit(const struct uruk_dylib *dylib,
                                          const struct uruk_unit *unit);

/**
 * As `uruk_dylib_define_unit`, under a tracker.
 */
URUK_MUST_USE
struct uruk_error *uruk_tracker_define_unit(const struct uruk_tracker *tracker,
                                            const struct uruk_unit *unit);

#ifdef __cplusplus
}
#endif

#endif
