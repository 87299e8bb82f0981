// noexcept is kept: the terminate handler of the program runs, and may leave.
// status: 8
// gate: C
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

static void handler() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (int n) {
    std::printf("terminate by %d\n", n);
  }
  std::exit(8);
}

__attribute__((noinline)) static void thrower(int n) { throw n; }
__attribute__((noinline)) static void promises(int n) noexcept { thrower(n); }

int main() {
  std::printf("%d\n", std::get_new_handler() == nullptr);
  std::set_terminate(handler);
  promises(3);
}
