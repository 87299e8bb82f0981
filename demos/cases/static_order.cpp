// Static objects: constructed in order, with priorities, across modules; local statics
// at first use; destroyed in reverse, interleaved with atexit; exit out of main.
// extra: static_order_other.cpp
// status: 6
// gate: C
#include <cstdio>
#include <cstdlib>

struct Loud {
  const char *name;
  explicit Loud(const char *n) : name(n) { std::printf("+%s\n", name); }
  ~Loud() { std::printf("-%s\n", name); }
};

static Loud first("first");
__attribute__((init_priority(500))) static Loud prior("prior");
__attribute__((init_priority(300))) static Loud most_prior("most prior");
static Loud second("second");
inline Loud inline_variable("inline");
template <int N> struct Holder { static Loud member; };
template <int N> Loud Holder<N>::member("template member");

static Loud &local() {
  static Loud object("local");
  return object;
}
void other();

struct AtExit {
  AtExit() { std::atexit([] { std::printf("handler of a constructor\n"); }); }
  ~AtExit() { std::printf("~AtExit %s\n", local().name); }
} at_exit;

int main() {
  std::printf("main\n");
  local();
  std::atexit([] { std::printf("handler of main\n"); static Loud late("late"); });
  other();
  (void)&Holder<3>::member;
  Loud automatic("never destroyed by exit");
  std::exit(6);
}
