/* Functions that are edited in all ways in which people edit them. The line N has the loop of
   `edits_loop.c` print what function N answers; a new version is this file with another EDIT.
 The
   table of what becomes of each is docs/guide/edits.md. */
#include <pthread.h>

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#ifndef EDIT
#define EDIT 0
#endif
#define IS(N) (EDIT == N)
#define F(N) extern "C" __attribute__((noinline)) long f##N(int x)

#if IS(34)
#line 1000
#endif
static int line_of() { return __LINE__; }

F(1) { return x + (IS(1) ? 20 : 10); }

#define STEP (IS(2) ? 7 : 3)
F(2) { return x * STEP; }

enum color { red = 1, green = IS(3) ? 9 : 2 };
F(3) { return x + green; }

F(4) { return x + (long)strlen(IS(4) ? "longer" : "text"); }

extern const int limit;
const int limit = IS(5) ? 50 : 40;
const int *volatile kept_limit = &limit;
F(5) { return x + *kept_limit * 1000 + *(const volatile int *)&limit; }

const int sizes[IS(6) ? 3 : 2] = {1, 2};
F(6) { return x + sizes[x & 1] + (long)(sizeof sizes / sizeof *sizes) * 100; }

long begins = IS(7) ? 500 : 5;
F(7) { return (begins += x) + (IS(7) ? 1000 : 0); }

F(8) {
#if IS(8)
  static long added = 100;
  return x + added++;
#else
  return x;
#endif
}

#if !IS(9)
static volatile long removed = 3;
#endif
F(9) {
#if IS(9)
  return x;
#else
  return x + removed;
#endif
}

#if IS(10)
static volatile long grown[4];
F(10) { return x + grown[3]++; }
#else
static volatile long grown;
F(10) { return x + grown++; }
#endif

#if IS(11)
static volatile unsigned typed = 7;
#elif IS(40)
static volatile float typed = 7;
#else
static volatile int typed = 7;
#endif
F(11) { return x + (typed > 5 ? 1 : 0) + (IS(11) ? 10 : 0); }

#if IS(12)
extern "C" __attribute__((noinline)) long more(int x, int y) { return x + y; }
#define MORE(x) more(x, 5)
#else
extern "C" __attribute__((noinline)) long more(int x) { return x; }
#define MORE(x) more(x)
#endif
F(12) { return MORE(x); }

#if IS(13)
extern "C" __attribute__((noinline)) double other(int x) { return x + 0.75; }
#else
extern "C" __attribute__((noinline)) long other(int x) { return x; }
#endif
F(13) { return (long)(other(x) * 4); }

struct state {
  volatile long n;
#if IS(14)
  long more;
#endif
} state;
F(14) { return state.n += x; }

static inline long in_header(long x) { return x + (IS(15) ? 6 : 4); }
F(15) { return in_header(x); }

inline __attribute__((noinline)) long in_class_header(long x) { return x + (IS(16) ? 6 : 4); }
F(16) { return in_class_header(x); }

template <typename T> __attribute__((noinline)) T twice(T x) { return x + x; }
#if IS(17)
F(17) { return (long)(twice(x + 0.25) * 2); }
#else
F(17) { return twice(x); }
#endif

struct shape {
  long side = 3;
  __attribute__((noinline)) long area() { return side * side + (IS(18) ? 100 : 0); }
} square;
F(18) { return x + square.area(); }

struct animal {
  virtual ~animal() {}
  virtual long legs() { return 4; }
#if IS(19)
  virtual long eyes() { return 2; }
#endif
};
animal *volatile pet;
F(19) {
  if (!pet) pet = new animal;
#if IS(19)
  return x + pet->eyes();
#else
  return x + pet->legs();
#endif
}

struct bird {
  virtual ~bird() {}
  virtual long wings(int x);
};
long bird::wings(int x) { return x + (IS(20) ? 8 : 2); }
bird *volatile parrot;
F(20) {
  if (!parrot) parrot = new bird;
  return parrot->wings(x);
}

#if IS(21)
static long started(const char *text) { return (long)strlen(text); }
volatile long made = started(getenv("PATH"));
F(21) { return x + made; }
#else
F(21) { return x; }
#endif

thread_local long counted = 1;
F(22) { return x + (counted += IS(22) ? 10 : 1); }

#if IS(23) || IS(38)
thread_local long fresh = 1;
static void *count_there(void *sum) {
  *(long *)sum = fresh++;
  *(long *)sum += fresh;
  return nullptr;
}
F(23) {
  long other = 0;
  pthread_t thread;
  pthread_create(&thread, nullptr, count_there, &other);
  pthread_join(thread, nullptr);
  return x + other * 10 + fresh++ + (IS(38) ? 100 : 0);
}
#else
F(23) { return x; }
#endif

F(24) {
  static const void *const labels[] = {&&one, &&two};
  goto *labels[x & 1];
one:
  return IS(24) ? 11 : 1;
two:
  return IS(24) ? 22 : 2;
}

extern "C" __attribute__((noinline)) long sum(int count, ...) {
  va_list list;
  long sum = IS(25) ? 100 : 0;
  va_start(list, count);
  while (count--) sum += va_arg(list, int);
  va_end(list);
  return sum;
}
F(25) { return sum(2, x, x); }

static jmp_buf back;
extern "C" __attribute__((noinline)) void jumps(int x) { longjmp(back, x + (IS(26) ? 5 : 1)); }
F(26) {
  int came = setjmp(back);
  if (!came) jumps(x);
  return came;
}

static volatile long caught;
extern "C" void on_signal(int) { caught += IS(28) ? 10 : 1; }
F(28) {
  signal(SIGUSR1, on_signal);
  return caught;
}
F(29) {
  raise(SIGUSR1);
  return x + caught;
}

F(30) {
  try {
    if (x) throw std::runtime_error(IS(30) ? "four" : "three");
  } catch (const std::exception &error) {
    return (long)strlen(error.what());
  }
  return 0;
}

#if IS(31)
extern "C" __attribute__((noinline)) long added(int x) { return x * 6; }
F(31) { return added(x); }
#else
F(31) { return x; }
#endif

#if !IS(32)
extern "C" __attribute__((noinline)) long dropped(int x) { return x + 1; }
F(32) { return dropped(x); }
#else
F(32) { return x + 2; }
#endif

extern "C" long called_back(int x) { return x + (IS(33) ? 60 : 6); }
long (*volatile callback)(int);
F(33) {
  if (!callback) callback = called_back;
  return callback(x);
}

F(34) { return x + (line_of() > 0); }

extern "C" __attribute__((noinline)) long throws(int x) {
#if IS(35)
  if (x) throw 35;
#endif
  return x;
}
F(35) {
  try {
    return throws(x);
  } catch (int number) {
    return number;
  }
}

volatile long chosen;
static __attribute__((noinline)) long choose(int x) {
  chosen++;
  switch (x) {
    case 1: return 10;
    case 2: return 20;
  }
  return 99;
}
F(36) {
  long (*by)(int) = choose;
#if IS(36)
  return by(x + 4);
#else
  return x & 1 ? by(1) : by(2);
#endif
}

#if IS(37) || IS(39)
static long length(const char *text) { return (long)strlen(text); }
thread_local long built = length("four");
#if IS(39)
thread_local long later = length("later");
#else
static const long later = 0;
#endif
static void *build_there(void *sum) {
  *(long *)sum = built++;
  return nullptr;
}
F(37) {
  long other = 0;
  pthread_t thread;
  pthread_create(&thread, nullptr, build_there, &other);
  pthread_join(thread, nullptr);
  return x + other * 10 + built++ + later;
}
#else
F(37) { return x; }
#endif

using step = long (*)(int);
step steps[3];
F(38) {
  if (!steps[0]) {
#if IS(41)
    steps[2] = [](int y) -> long { return y - 5000; };
#endif
    steps[0] = [](int y) -> long { return y + 100; };
    steps[1] = [](int y) -> long { return y + 200; };
  }
  return steps[0](x) + steps[1](x);
}

F(39) {
  long sum = 0;
#if !IS(42)
  if (x) {
    static volatile long n = 1;
    sum += n++;
  }
#endif
  {
    static volatile long n = 1000;
    sum += n++;
  }
  return sum;
}

extern "C" long one_way(int x) { return x + 1; }
extern "C" long other_way(int x) { return x + 2; }
#if IS(43)
extern "C" long way(int) __attribute__((alias("other_way")));
#else
extern "C" long way(int) __attribute__((alias("one_way")));
#endif
F(40) { return way(x); }

volatile long booted;
#if IS(44)
static void boot() { booted = 100; }
__attribute__((section(".init_array"), used)) static void (*booting)() = boot;
#endif
F(41) { return x + booted; }

struct entry {
  long value;
};
#define ENTRY(name, value) \
  __attribute__((section("entries"), used)) static struct entry name = {value};
ENTRY(entry_one, 10)
#if IS(45)
ENTRY(entry_two, 300)
#endif
extern "C" struct entry __start_entries, __stop_entries;
F(42) {
  long sum = IS(45) ? 1000 : 0;
  for (struct entry *at = &__start_entries; at < &__stop_entries; at++) sum += at->value;
  return x + sum;
}

struct fish {
#if IS(46)
  virtual long fins() { return 2; }
  virtual long eyes() { return 100; }
#else
  virtual long eyes() { return 100; }
  virtual long fins() { return 2; }
#endif
};
fish *volatile shark;
F(43) {
  if (!shark) shark = new fish;
  return shark->fins() + (IS(46) ? 1000 : 0);
}

struct mortal {
  virtual long years() { return 70; }
};
struct winged {
  volatile long span = 1;
  virtual long feathers() { return 5; }
};
#if IS(47)
struct angel : winged, mortal {
#else
struct angel : mortal {
#endif
  volatile long halo = 6;
  long years() override { return halo; }
};
mortal *volatile raphael;
F(44) {
  if (!raphael) raphael = new angel;
  return raphael->years();
}

#if IS(48)
extern "C" __attribute__((noinline)) long now_seen(int x) { return x + 40; }
#else
extern "C" { static __attribute__((noinline)) long now_seen(int x) { return x + 4; } }
#endif
F(45) { return now_seen(x); }

extern "C" {
extern inline __attribute__((gnu_inline, always_inline)) long only_inline(int x) { return x * 7; }
}
F(46) { return IS(49) ? only_inline(x) : x; }

extern "C" __attribute__((weak)) long weak_one(int x) { return x + (IS(50) ? 5000 : 500); }
F(47) { return weak_one(x) + (IS(50) ? 1 : 0); }

F(48) {
#if IS(52)
  static long begun = x > 100 ? x : 5;
#else
  static long begun = 5;
#endif
  return ++begun;
}

extern "C" {
static __attribute__((noinline)) long behind(int x) { return x + (IS(53) ? 60 : 6); }
long in_front(int x) __attribute__((weak, alias("_ZL6behindi")));
}
F(49) { return in_front(x); }

extern "C" __attribute__((weak, noinline)) long weak_alone(int x) { return x + (IS(54) ? 70 : 7); }
F(50) { return weak_alone(x); }

#if IS(55)
alignas(4096)
#endif
long aligned_at[2] = {1, 2};
F(51) { return x + aligned_at[0] + (IS(55) ? 100 : 0); }

#if IS(56) || IS(57)
extern "C" { long brought = 100; }
F(52) { return (brought += x) * (IS(57) ? 10 : 1); }
#else
F(52) { return x; }
#endif

extern "C" {
static __attribute__((noinline)) long behind_two(int x) { return x + (IS(58) ? 80 : 8); }
long in_front_two(int x) __attribute__((alias("_ZL10behind_twoi")));
}
F(53) { return behind_two(x); }

#if IS(59)
extern "C" long becomes(int x) __attribute__((alias("f1")));
#else
extern "C" __attribute__((noinline)) long becomes(int x) { return x + 9; }
#endif
F(54) { return becomes(x); }

#if IS(60)
alignas(256)
#endif
thread_local long own_aligned = 4;
F(55) { return x + own_aligned + (IS(60) ? 100 : 0); }

#if !IS(61)
thread_local
#endif
long own_or_not = 5;
F(56) { return x + own_or_not + (IS(61) ? 100 : 0); }

extern "C" long by_alias(int x) __attribute__((alias("weak_one")));
F(57) { return by_alias(x) + (IS(62) ? 1 : 0); }

#if IS(63) || IS(64)
static __attribute__((noinline)) long helps() { return IS(64) ? 2 : 1; }
extern "C" __attribute__((noinline)) long folded() { return helps(); }
#else
extern "C" __attribute__((noinline)) long folded() { return 1; }
#endif
F(58) { return x + folded(); }

#if IS(51)
__attribute__((destructor)) static void ends() { chosen = 0; }
#endif

long (*const functions[])(int) = {
    f1,  f2,  f3,  f4,  f5,  f6,  f7,  f8,  f9,  f10, f11, f12, f13, f14, f15, f16, f17, f18,
    f19, f20, f21, f22, f23, f24, f25, f26, f1,  f28, f29, f30, f31, f32, f33, f34, f35, f36,
    f37, f38, f39, f40, f41, f42, f43, f44, f45, f46, f47, f48, f49, f50, f51, f52, f53, f54,
    f55, f56, f57, f58};

extern "C" long answer(int number, int x) { return functions[number - 1](x); }
