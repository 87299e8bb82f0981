// Exceptions around loops that are left: thrown in the loop and caught in it, by the function
// that loops, and by its caller; objects made before the loop, in it and behind it are
// destroyed once, in order; what is thrown again, nested and of several types.
// flags: -fexceptions
#include <cstdio>
#include <stdexcept>
#include <string>

struct Noted {
  const char *name;
  int number;
  Noted(const char *name, int number) : name(name), number(number) { std::printf("+%s%d ", name, number); }
  ~Noted() { std::printf("-%s%d ", name, number); }
};

__attribute__((noinline)) static int check(int value, int at) {
  if (value == at) throw value;
  if (value == at + 7) throw std::runtime_error("text " + std::to_string(value));
  return value * 3;
}

// Caught in the loop, which goes on.
__attribute__((noinline)) static long inside(int rounds, int at) {
  Noted before("before", rounds);
  long sum = 0;
  for (int i = 0; i < rounds; i++) {
    Noted here("in", i);
    try {
      sum += check(i, at);
    } catch (int value) {
      std::printf("caught %d ", value);
      sum += 1000;
    } catch (const std::exception &text) {
      std::printf("caught %s ", text.what());
      if (i > at + 6) break;
    }
  }
  Noted after("after", 1);
  return sum;
}

// Caught by the function, outside of the loop.
__attribute__((noinline)) static long around(int rounds, int at) {
  Noted before("before", rounds);
  long sum = 0;
  try {
    Noted tried("tried", at);
    for (int i = 0; i < rounds; i++) {
      for (int j = 0; j < 3; j++) {
        Noted here("in", j);
        sum += check(i, at) + j;
      }
    }
  } catch (int value) {
    std::printf("sum %ld ", sum);
    sum += value;
  }
  return sum;
}

// Caught by the caller, or by nobody on the way: thrown again from a handler in a loop.
__attribute__((noinline)) static long through(int rounds, int at) {
  std::string text = "a string that is longer than what fits in place";
  Noted before("before", rounds);
  for (int i = 0; i < rounds; i++) {
    try {
      text += std::to_string(check(i, at));
    } catch (int) {
      for (int j = 0; j < 4; j++)
        if (j == 3) throw;
    }
  }
  return static_cast<long>(text.size());
}

// A function that promises to throw nothing, and catches all in its loop.
__attribute__((noinline)) static int quiet(int rounds, int at) noexcept {
  int caught = 0;
  for (int i = 0; i < rounds; i++) {
    try {
      through(i, at);
    } catch (...) {
      caught++;
    }
  }
  return caught;
}

int main() {
  for (int at = 0; at < 9; at += 2) {
    std::printf("\ninside %ld\n", inside(20, at));
    std::printf("\naround %ld\n", around(12, at));
    try {
      std::printf("\nthrough %ld\n", through(10, at + 3));
    } catch (int value) {
      std::printf("\nmain caught %d\n", value);
    } catch (const std::exception &text) {
      std::printf("\nmain caught %s\n", text.what());
    }
  }
  std::printf("\nquiet %d\n", quiet(12, 5));
}
