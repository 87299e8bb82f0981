// What `cross_modules.cpp` calls.
struct Failure { int code; };

static int count = 5;
static thread_local int calls = 0;
static const char *const names[] = {"one", "three", "a longer one", ""};

static int step(int x) {
  static int inner = 0;
  inner += x & 1;
  count += inner;
  return count & 0xff;
}

int bump(int x) { return step(x) * 2; }
int seen() { return count; }
int per_thread(int x) { return calls += x; }
const char *text(int x) { return names[x & 3]; }

int may_throw(int x) {
  if (x % 5 == 4) throw Failure{x};
  return x;
}

struct Cleanup {
  int *where;
  ~Cleanup() { ++*where; }
};

int passes_through(int x) {
  static int cleanups = 0;
  Cleanup cleanup{&cleanups};
  if (x % 7 == 6) throw "seven";
  return may_throw(x) + (cleanups & 1);
}

__attribute__((weak)) int chosen(int x) { return x + 1000; }
int chosen_there(int x) { return chosen(x); }

static int third(int x) { return x * 7 + count; }
static int second(int x) { return third(x + 1) ^ 3; }
int through_a_chain(int x) { return second(x) - 1; }

template <class T> T templated(T x) { static int calls = 0; return x + ++calls; }
int templated_there(int x) { return templated(x); }
inline int *shared_static() { static int value = 3; return &value; }
int *shared_static_there() { return shared_static(); }

typedef int function(int);
static int triple(int x) { return x * 3 + 1; }
static int negate(int x) { return -x + 5; }
function *target(int which) { return which ? negate : triple; }
