// A local function that natively gives no result, as its callers know the constant. FIXED: it gives two.
// Lines are answered by lost_result_main.c.

static volatile int calls;

static __attribute__((noinline)) int status(int kind) {
    calls += kind;
#ifdef FIXED
    if (kind == 1) return 8;
#endif
    return 7;
}

__attribute__((noinline)) int report(int kind) { return status(kind) * 10; }
