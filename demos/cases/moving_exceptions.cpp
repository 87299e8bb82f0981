// An exception passes frames whose functions are compiled again and moved by what their
// destructors call; it is thrown again and kept for another thread.
// flags: -pthread
// levels: O1-no-passes O2
// modes: lazy moving
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include "parts/fresh.h"

static int next_fresh;
struct Guard {
  int depth;
  ~Guard() {
    call_fresh(next_fresh++, 1);
    usleep(3000);
  }
};

[[gnu::noinline]] static int pass(int depth) {
  Guard guard{depth};
  if (depth == 0) throw std::runtime_error("bottom");
  try {
    return pass(depth - 1) + depth;
  } catch (const std::logic_error &) {
    return -1;
  }
}

[[gnu::noinline]] static std::string again(int depth) {
  try {
    pass(depth);
  } catch (const std::exception &e) {
    Guard guard{0};
    try {
      throw;
    } catch (const std::runtime_error &inner) {
      return std::string(e.what()) + " " + inner.what();
    }
  }
  return "nothing";
}

int main() {
  std::printf("%s\n", again(20).c_str());
  std::exception_ptr kept;
  try {
    pass(20);
  } catch (...) {
    kept = std::current_exception();
  }
  std::thread other([&] {
    try {
      call_fresh(next_fresh++, 1);
      std::rethrow_exception(kept);
    } catch (const std::exception &e) {
      std::printf("elsewhere %s, %d\n", e.what(), next_fresh);
    }
  });
  other.join();
}
