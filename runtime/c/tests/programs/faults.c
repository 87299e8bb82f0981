/* A collector whose pages are closed for its barriers. */
#include "check.h"

#include <stddef.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 8 };

static char *heap;
static volatile int reads, writes;

static int barrier(uint64_t address, int access)
{
    char *page = (char *)(uintptr_t)(address & ~(uint64_t)(PAGE - 1));
    if (page < heap || page >= heap + PAGES * PAGE)
        return 0;
    if (access == 0)
        ++reads;
    else
        ++writes;
    return mprotect(page, PAGE, access == 0 ? PROT_READ : PROT_READ | PROT_WRITE) == 0;
}

static const char code[] =
    "define i64 @load(ptr %p) { %v = load i64, ptr %p ret i64 %v }"
    "define i64 @store(ptr %p) { store i64 5, ptr %p ret i64 5 }";

int main(void)
{
    uruk_settings settings;
    uruk_jit *jit;
    uruk_function load, store;
    int page;

    heap = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(heap != MAP_FAILED);
    uruk_settings_init(&settings, sizeof settings);
    settings.on_fault = barrier;
    FINE(uruk_jit_new(&settings, &jit));
    FINE(uruk_dylib_add_ir(uruk_jit_main(jit), "m", code));
    FINE(uruk_dylib_function(uruk_jit_main(jit), "load", "i64 (ptr)", &load));
    FINE(uruk_dylib_function(uruk_jit_main(jit), "store", "i64 (ptr)", &store));
    for (page = 0; page < PAGES; ++page) {
        char *place = heap + page * PAGE;
        CHECK(((int64_t(*)(void *))load)(place) == 0);
        CHECK(((int64_t(*)(void *))store)(place) == 5);
        CHECK(((int64_t(*)(void *))load)(place) == 5);
    }
    CHECK(reads == PAGES && writes == PAGES);
    uruk_jit_free(jit);
    puts("passed");
    return 0;
}
