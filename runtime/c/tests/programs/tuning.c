/* A session that is tuned: what counts as work, what is told, and what the next one starts from. */
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

typedef int64_t (*unary)(int64_t);

/* What the listener saw, on whatever thread, maybe while the session ends. */
static struct seen {
    pthread_mutex_t lock;
    int tuned, tier;
    char function[64];
} seen = {PTHREAD_MUTEX_INITIALIZER, 0, 0, ""};

static void told(void *context, const uruk_event *event)
{
    struct seen *seen = context;

    CHECK(seen != NULL);
    if (event->kind != URUK_EVENT_TUNED)
        return;
    pthread_mutex_lock(&seen->lock);
    seen->tuned++;
    seen->tier = event->tier;
    if (strlen(event->function) < sizeof seen->function)
        strcpy(seen->function, event->function);
    CHECK(event->version > 0 && strstr(event->message, " times as fast") != NULL);
    pthread_mutex_unlock(&seen->lock);
}

static const char *const STEPS =
    "define i64 @steps(i64 %count) {\n"
    "entry:\n"
    "  br label %loop\n"
    "loop:\n"
    "  %left = phi i64 [ %count, %entry ], [ %less, %loop ]\n"
    "  %x = phi i64 [ 1, %entry ], [ %y, %loop ]\n"
    "  %odd = mul i64 %x, 6364136223846793005\n"
    "  %high = lshr i64 %odd, 33\n"
    "  %y = xor i64 %odd, %high\n"
    "  %less = sub i64 %left, 1\n"
    "  %more = icmp ne i64 %less, 0\n"
    "  br i1 %more, label %loop, label %done\n"
    "done:\n"
    "  ret i64 %y\n"
    "}\n";

static unary steps_of(uruk_jit *jit)
{
    const uruk_dylib *dylib = uruk_jit_main(jit);
    uruk_function function;

    FINE(uruk_dylib_add_ir(dylib, "steps", STEPS));
    FINE(uruk_dylib_function(dylib, "steps", "i64 (i64)", &function));
    return (unary)function;
}

/* Until a trial ended, in a session that is told of its work. What it learned, to be freed. */
static char *tuned(void)
{
    uruk_settings settings;
    uruk_stats stats;
    uruk_jit *jit;
    unary steps;
    int64_t expected;
    char *text;
    time_t begin = time(NULL);
    int is_told;

    uruk_settings_init(&settings, sizeof settings);
    settings.tune = 1;
    settings.tuning_percent = 100;
    settings.tuning_credit_ms = 3600000;
    settings.context = &seen;
    settings.on_event = told;
    FINE(uruk_jit_new(&settings, &jit));
    steps = steps_of(jit);
    expected = steps(5000);
    do {
        int call;
        for (call = 0; call < 64; call++) {
            CHECK(steps(5000) == expected);
            uruk_jit_work_done(jit, 3);
        }
        pthread_mutex_lock(&seen.lock);
        is_told = seen.tuned != 0;
        pthread_mutex_unlock(&seen.lock);
        CHECK(time(NULL) - begin < 240);
    } while (!is_told);
    pthread_mutex_lock(&seen.lock);
    CHECK(seen.tier >= 2 && strcmp(seen.function, "steps") == 0);
    pthread_mutex_unlock(&seen.lock);
    FINE(uruk_jit_stats(jit, &stats, sizeof stats));
    CHECK(stats.tuning_trials > 0 && stats.tuning_won <= stats.tuning_trials);
    CHECK(stats.tuning_ran_ns > 0);
    CHECK(stats.tuning_lost_ns > 0 || stats.tuning_won == stats.tuning_trials);

    /* A line for the function, and one for its trial, which went by what was told. */
    FINE(uruk_jit_tuning(jit, &text));
    CHECK(strncmp(text, "steps: tier ", 12) == 0);
    CHECK(strstr(text, " pairs by work done\n") != NULL);
    uruk_string_free(text);
    FINE(uruk_jit_tuning_text(jit, &text));
    CHECK(strncmp(text, "uruk tuning ", 12) == 0);
    uruk_jit_free(jit);
    return text;
}

/* The next session knows what the one before had learned, and hands it on in a file. */
static void known(const char *learned)
{
    char file[64];
    uruk_settings settings;
    uruk_stats stats;
    uruk_jit *jit;
    char *text, kept[12];
    const char *line, *found;
    size_t length;
    FILE *read;

    sprintf(file, "tuning-%p.txt", (void *)&settings);
    uruk_settings_init(&settings, sizeof settings);
    settings.tune = 1;
    settings.tuned_before = learned;
    FINE(uruk_jit_new(&settings, &jit));
    FINE(uruk_jit_tuning(jit, &text));
    CHECK(text[0] == '\0');
    uruk_string_free(text);
    FINE(uruk_jit_tuning_text(jit, &text));
    /* The line of the function that was tried, which nobody defined here. */
    line = strstr(learned, "\nopen ");
    CHECK(line != NULL && strchr(line + 1, '\n') != NULL);
    length = (size_t)(strchr(line + 1, '\n') - line);
    found = strstr(text, "\nopen ");
    CHECK(found != NULL && strncmp(found, line, length) == 0);
    uruk_string_free(text);
    FINE(uruk_jit_keep_tuning(jit, file));
    read = fopen(file, "rb");
    CHECK(read != NULL && fread(kept, 1, 12, read) == 12);
    CHECK(memcmp(kept, "uruk tuning ", 12) == 0);
    fclose(read);
    CHECK(remove(file) == 0);
    FAILS(uruk_jit_keep_tuning(jit, "nowhere/at/all"), URUK_ERROR_ARGUMENT, "nowhere/at/all");
    FINE(uruk_jit_stats(jit, &stats, sizeof stats));
    CHECK(stats.tuning_trials == 0);
    uruk_jit_free(jit);
}

/* What cannot be meant. */
static void refused(void)
{
    uruk_settings settings;
    uruk_jit *jit = NULL;
    char *text;

    uruk_settings_init(&settings, sizeof settings);
    settings.tuning_percent = -1;
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "tuning_percent");
    settings.tuning_percent = NAN;
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "tuning_percent");
    settings.tuning_percent = 0;
    settings.tuned_before = "\xff";
    FAILS(uruk_jit_new(&settings, &jit), URUK_ERROR_ARGUMENT, "tuned_before");
    CHECK(jit == NULL);
    /* A session that is not tuned has found out nothing, and work that is done is nothing to it. */
    uruk_settings_init(&settings, sizeof settings);
    FINE(uruk_jit_new(&settings, &jit));
    uruk_jit_work_done(jit, 1);
    uruk_jit_work_done(NULL, 1);
    FINE(uruk_jit_tuning(jit, &text));
    CHECK(text[0] == '\0');
    uruk_string_free(text);
    FAILS(uruk_jit_tuning(NULL, &text), URUK_ERROR_ARGUMENT, "jit");
    FAILS(uruk_jit_tuning_text(jit, NULL), URUK_ERROR_ARGUMENT, "learned");
    FAILS(uruk_jit_keep_tuning(jit, NULL), URUK_ERROR_ARGUMENT, "path");
    uruk_jit_free(jit);
}

int main(void)
{
    char *learned = tuned();

    known(learned);
    uruk_string_free(learned);
    refused();
    puts("passed");
    return 0;
}
