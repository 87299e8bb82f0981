// Exceptions that cross frames of libraries: libc's qsort and bsearch, std::sort,
// std::function, std::call_once, streams with exceptions on, and a thread boundary.
// flags: -pthread
// gate: C
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

struct Note {
  const char *text;
  ~Note() { std::printf("~%s\n", text); }
};

static int calls;
static int compare(const void *a, const void *b) {
  Note note{"compare"};
  if (++calls == 3) throw std::runtime_error("from qsort");
  return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

template <class F> static void attempt(F f) {
  try {
    f();
    std::printf("nothing thrown\n");
  } catch (const std::exception &e) {
    std::printf("caught %s\n", e.what());
  } catch (int number) {
    std::printf("caught %d\n", number);
  }
}

int main() {
  int numbers[] = {5, 2, 9, 1, 7};
  attempt([&] { std::qsort(numbers, 5, sizeof *numbers, compare); });
  attempt([&] {
    int key = 7;
    std::bsearch(&key, numbers, 5, sizeof *numbers, [](const void *, const void *) -> int { throw 12; });
  });
  attempt([] {
    std::vector<int> v{3, 1, 2};
    std::sort(v.begin(), v.end(), [](int, int) -> bool { throw std::logic_error("from sort"); });
  });
  std::function<void(int)> f = [](int n) { Note note{"function"}; if (n) throw n; };
  attempt([&] { f(0); });
  attempt([&] { f(42); });
  attempt([] { std::function<void()> empty; empty(); });
  std::once_flag once;
  for (int i = 0; i < 3; i++)
    attempt([&] {
      std::call_once(once, [i] {
        if (i == 0) throw std::runtime_error("once");
        std::printf("second time succeeds\n");
      });
    });
  attempt([] {
    std::istringstream in("not a number");
    in.exceptions(std::ios::failbit);
    int n;
    try {
      in >> n;
    } catch (const std::ios_base::failure &) {
      throw std::runtime_error("stream");
    }
  });
  std::exception_ptr kept;
  std::thread([&] {
    try {
      std::vector<int>().at(3);
    } catch (...) {
      kept = std::current_exception();
    }
  }).join();
  try {
    std::rethrow_exception(kept);
  } catch (const std::out_of_range &) {
    std::printf("out of range in a thread\n");
  }
}
