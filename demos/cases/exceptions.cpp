// C++ exceptions: through frames of our own, with destructors, rethrown, nested,
// by value and by reference, out of constructors, and from deep recursion.
// gate: C
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

struct Guard {
  const char *name;
  ~Guard() { std::printf("~%s\n", name); }
};

[[gnu::noinline]] static int thrower(int depth) {
  Guard guard{depth % 10 == 0 ? "tenth" : "other"};
  if (depth == 0) throw std::runtime_error("bottom");
  return thrower(depth - 1) + 1;
}

struct Base {
  virtual ~Base() = default;
  virtual const char *what() const { return "base"; }
};
struct Derived : Base {
  const char *what() const override { return "derived"; }
};

struct Half {
  Guard first{"first member"};
  Half() { throw 42; }
};

static void function_try(int x) try {
  if (x) throw std::string("in function try");
} catch (const std::string &text) {
  std::printf("%s\n", text.c_str());
}

static void no_more() noexcept(false) { throw Derived(); }

int main() {
  try {
    thrower(12);
  } catch (const std::exception &e) {
    std::printf("caught %s\n", e.what());
  }
  try {
    Half half;
  } catch (int number) {
    std::printf("int %d\n", number);
  }
  try {
    no_more();
  } catch (const Base &base) {
    std::printf("as base: %s\n", base.what());
  }
  try {
    try {
      throw 1L;
    } catch (...) {
      std::printf("again\n");
      throw;
    }
  } catch (long number) {
    std::printf("long %ld, uncaught %d\n", number, std::uncaught_exceptions());
  }
  try {
    try {
      throw std::logic_error("inner");
    } catch (...) {
      std::throw_with_nested(std::runtime_error("outer"));
    }
  } catch (const std::exception &e) {
    std::printf("%s\n", e.what());
    try {
      std::rethrow_if_nested(e);
    } catch (const std::exception &nested) {
      std::printf("nested %s\n", nested.what());
    }
  }
  std::exception_ptr kept;
  try {
    std::string().at(5);
  } catch (...) {
    kept = std::current_exception();
  }
  try {
    std::rethrow_exception(kept);
  } catch (const std::out_of_range &) {
    std::printf("out of range, from libstdc++\n");
  }
  function_try(1);
  for (int i = 0; i < 1000; i++) {
    try {
      throw i;
    } catch (int number) {
      if (number != i) return 1;
    }
  }
  std::printf("done\n");
}
