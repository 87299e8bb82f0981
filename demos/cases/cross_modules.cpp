// Hot functions of another file, which tiers 2 and 3 inline: statics, thread-locals,
// strings, templates, weak functions, exceptions through them, pointers to them.
// extra: cross_modules_other.cpp
#include <cstdio>
#include <cstring>
#include <thread>

struct Failure { int code; };
struct Counted { static int alive; Counted() { alive++; } ~Counted() { alive--; } };
int Counted::alive = 0;

int bump(int x);
int seen();
int per_thread(int x);
int may_throw(int x);
int passes_through(int x);
const char *text(int x);
int chosen(int x);
int chosen_there(int x);
int through_a_chain(int x);
typedef int function(int);
function *target(int which);
template <class T> T templated(T x) { static int calls = 0; return x + ++calls; }
int templated_there(int x);
inline int *shared_static() { static int value = 3; return &value; }
int *shared_static_there();

// The other file's is weak.
int chosen(int x) { return x + 1; }

// Names the other file has too.
static int count = 1000;
static int step(int x) { count += x; return count; }

static int work(int rounds) {
  int sum = 0;
  for (int i = 0; i < rounds; i++) {
    sum += bump(i) + step(1) + per_thread(1) + chosen_there(i) + chosen(i);
    sum += (int)strlen(text(i)) + templated(i) + templated_there(i);
    sum ^= through_a_chain(i);
    *shared_static() += *shared_static_there() & 1;
  }
  return sum;
}

static int unwinds(int rounds) {
  int caught = 0;
  for (int i = 0; i < rounds; i++) {
    Counted here;
    try {
      Counted there;
      caught += may_throw(i) + passes_through(i);
    } catch (const Failure &failure) {
      caught += failure.code * 100;
    } catch (const char *message) {
      caught += (int)strlen(message);
    }
  }
  return caught + Counted::alive;
}

static int calls(function *f, int rounds) {
  int sum = 0;
  for (int i = 0; i < rounds; i++) sum = f(sum) & 0xffff;
  return sum;
}

int main() {
  int sum = 0;
  for (int i = 0; i < 300; i++) sum ^= work(200) + unwinds(20);
  printf("%d %d %d\n", sum, seen(), *shared_static());
  function *often = target(0), *rarely = target(1);
  for (int i = 0; i < 300; i++) sum ^= calls(often, 2000);
  printf("%d %d %d\n", sum, calls(rarely, 20), often == target(0));
  std::thread other([] { printf("%d %d\n", work(50), per_thread(0)); });
  other.join();
  printf("%d %d\n", work(50), per_thread(0));
  return 0;
}
