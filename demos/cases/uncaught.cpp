// An exception nobody catches: libstdc++ says so and aborts.
// signal: SIGABRT
// stderr: same
// gate: C
#include <cstdio>
#include <stdexcept>

struct Never { ~Never() { std::printf("never\n"); } };

__attribute__((noinline)) static void deep(int n) {
  Never never;
  if (n == 0) throw std::runtime_error("nobody catches this");
  deep(n - 1);
}

int main() { deep(5); }
