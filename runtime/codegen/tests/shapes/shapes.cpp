// Functions of different shape, each large enough that LLVM asks before every pass. The
// numbers only keep the optimizer from folding one repetition into another.

#include <cstdarg>
#include <cstdint>

#define R4(m, n) m(n + 0) m(n + 1) m(n + 2) m(n + 3)
#define R16(m, n) R4(m, n) R4(m, n + 4) R4(m, n + 8) R4(m, n + 12)
#define R20(m) R16(m, 0) R4(m, 16)
#define R32(m) R16(m, 0) R16(m, 16)

extern "C" {
int64_t outside(int64_t);
void keep(void *);
double root(double);
extern int64_t table[256];

// A loop around a switch, whose cases change what the next one works on.
#define CASE(n) \
    case (n): \
        a = a * (2 * (n) + 3) ^ (b >> ((n) % 13)); \
        b += a & (n) ? a : b; \
        break;
int64_t switch_loop(const uint8_t *code, int64_t length) {
    int64_t a = 1, b = 2;
    for (int64_t i = 0; i < length; i++)
        switch (code[i]) {
            R20(CASE)
        default:
            return a;
        }
    return a + b;
}

// Cases that only yield a value: a table of values, and one of jumps to calls.
#define VALUE(n) case (n): v = (n) * (n) * 7919 % 1009; break;
#define CALL(n) case (n): v += outside(v + (n)); break;
int64_t jump_tables(int64_t x) {
    int64_t v = x;
    switch (x & 63) { R32(VALUE) default: v = 5; }
    switch (v & 63) { R32(CALL) R16(CALL, 32) default: v = outside(v); }
    return v;
}

// Loops that are made of vectors.
#define SUM(n) \
    for (int i = 0; i < length; i++) \
        out[i] += in[i] * ((n) + 1) + (out[i] >> ((n) & 7));
void vector_loops(int *__restrict out, const int *__restrict in, int length) {
    R4(SUM, 0) R4(SUM, 4) R4(SUM, 8)
}

// Floating point, with calls that take it.
#define TERM(n) \
    x = x * 1.25 + y / ((n) + 1.5); \
    if (x > 1e9) \
        y = root(x) - (double)(int64_t)y;
double floating(double x, double y) {
    R20(TERM) R4(TERM, 20) R4(TERM, 24)
    return x - y;
}

// Nested loops over memory.
#define NEST(n) \
    for (int64_t i = 0; i < size; i++) \
        for (int64_t k = 0; k < size; k++) \
            for (int64_t j = 0; j < size; j++) \
                c[i * size + j] += a[i * size + k] * b[k * size + j + (n)];
void nests(double *c, const double *a, const double *b, int64_t size) {
    R4(NEST, 0) NEST(4) NEST(5)
}

// Many values that live across many branches.
#define WEB(n) \
    if (x & (1 << ((n) % 31))) { a += d * ((n) + 3); c ^= b; } \
    else { b -= a; d = (c << 3) + e; } \
    if (a > b + (n)) { e += c; f = a - f; } \
    x = a ^ d ^ f;
int64_t webs(int64_t x, int64_t a, int64_t b, int64_t c) {
    int64_t d = a, e = b, f = c;
    R4(WEB, 0) R4(WEB, 8) R4(WEB, 16)
    return a + b + c + d + e + f;
}

// It calls itself, everywhere.
#define AGAIN(n) if (x % ((n) + 2) == 0) sum += recursion(x / 2 - (n)) ^ (n);
int64_t recursion(int64_t x) {
    int64_t sum = x;
    if (x < 2)
        return x;
    R32(AGAIN)
    return sum;
}

// Labels as values.
#define STEP(n) l_##n: a = (a ^ n) * 31 + table[a & 255]; b += a >> n; a |= b; goto *labels[*code++ & 15];
int64_t labels(const uint8_t *code) {
    int64_t a = 1, b = 0;
    static const void *const labels[] = {
        &&l_0, &&l_1, &&l_2, &&l_3, &&l_4, &&l_5, &&l_6, &&l_7,
        &&l_8, &&l_9, &&l_10, &&l_11, &&l_12, &&l_13, &&l_14, &&l_end};
    goto *labels[*code++ & 15];
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
    STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14)
l_end:
    return a + b;
}

// Atomic operations of all kinds and widths.
#define ATOM(n) \
    x += __atomic_fetch_add(word, (n), __ATOMIC_SEQ_CST); \
    x ^= __atomic_fetch_xor(byte + (n), (char)(n), __ATOMIC_RELAXED); \
    x += __atomic_fetch_nand(word + (n), x, __ATOMIC_ACQ_REL); \
    __atomic_compare_exchange_n(word, &x, x + (n), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); \
    __atomic_store_n(word + (n), x, __ATOMIC_RELEASE);
int64_t atomics(int64_t *word, char *byte) {
    int64_t x = 0;
    R4(ATOM, 0) R4(ATOM, 4)
    return x;
}

// Arguments without a number.
#define NEXT(n) \
    sum += (n) % 3 == 0 ? va_arg(list, int) : (n) % 3 == 1 ? va_arg(list, int64_t) \
                                                         : (int64_t)va_arg(list, double);
int64_t variadic(int count, ...) {
    va_list list;
    va_start(list, count);
    int64_t sum = count;
    R20(NEXT)
    va_end(list);
    return sum;
}

// Memory on the stack, of sizes known and not, and assembly.
#define BUFFER(n) { \
    char *room = (char *)__builtin_alloca(size + (n)); \
    int64_t fixed[(n) % 5 + 1] = {size}; \
    room[size / 2] = (char)(n); \
    asm volatile("" : "+r"(size) : "r"(room) : "rbx", "xmm3", "memory"); \
    keep(fixed), keep(room); }
int64_t stacks(int64_t size) {
    R16(BUFFER, 1)
    return size;
}
}

// Exceptions: clean-ups, handlers of several types, and throwing on.
struct Guard {
    int64_t number;
    explicit Guard(int64_t x) : number(x) { outside(x); }
    ~Guard() { outside(-number); }
};
#define TRY(n) \
    try { \
        Guard guard(x + (n)); \
        if (outside(x) == (n)) \
            throw (int)(n); \
    } catch (int caught) { \
        x += caught; \
    } catch (const Guard &caught) { \
        x -= caught.number; \
    }
extern "C" int64_t exceptions(int64_t x) {
    Guard whole(x);
    R4(TRY, 0) TRY(4) TRY(5)
    return x;
}

// Wide integers, rotations, counts of bits and division: what is expanded late.
#define WIDE(n) \
    w = w * ((n) * 2 + 5) + (unsigned __int128)(x / ((n) + 3)); \
    x = x << ((n) % 63) | x >> (64 - (n) % 63 - 1); \
    x += __builtin_popcountll(x) + __builtin_clzll(x | 1) + (uint64_t)(w / (x | 1));
extern "C" uint64_t wide(uint64_t x) {
    unsigned __int128 w = x;
    R4(WIDE, 1) R4(WIDE, 5) R4(WIDE, 9) R4(WIDE, 13)
    return x + (uint64_t)(w >> 64);
}
