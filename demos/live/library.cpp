// The library of `libraries.cpp`, whose functions are compiled again as the program's are.
#include "libraries.h"

#include <cstring>
#include <typeinfo>

#define LEFT_ALONE __attribute__((noinline))

__attribute__((used)) static int order;
__attribute__((constructor)) static void begin() { order = order * 10 + 1; }

// Hidden: another one than the program's of the same name.
extern "C" __attribute__((visibility("hidden"), noinline)) int of_both(int x) { return x * 3 + order; }

static thread_local int calls = 5;

// The program has one of the second name, too.
extern "C" {
__thread unsigned library_value = 3;
__thread int value_of_both = 50;
}

extern "C" {
int shared_value = 7;
LEFT_ALONE int interposed(int x) { return x + 1; }
__attribute__((weak)) int weak_interposed(int x) { return x + 2; }
int ask_interposed(int x) { return interposed(x) * 2; }
int ask_weak(int x) { return weak_interposed(x) * 2; }
int shared_changed(int by) { return shared_value += by; }
int library_of_both(int x) { return of_both(x) + 1; }
LEFT_ALONE int twice(int x) { return 2 * x; }
callback library_callback(void) { return twice; }
bool is_library_callback(callback one) { return one == twice; }
int call_back(callback one, int x) { return one(x) + 1; }
int thread_count(void) { return ++calls; }
unsigned thread_value(void) { return library_value *= 3; }
int thread_value_of_both(void) { return ++value_of_both; }
int begun(void) { return order; }
}

int library_counted(int by) { return counted(by); }
void library_throws(int value) {
  if (value % 3 == 0) throw Thrown("from the library");
}
int library_catches(void (*thrower)(int), int value) {
  try {
    thrower(value);
    return 0;
  } catch (const Thrown &thrown) {
    return static_cast<int>(std::strlen(thrown.what()));
  }
}
Shape *library_shape() { return new Shape; }
bool is_plain(const Shape &shape) { return typeid(shape) == typeid(Shape); }

long work(const int *numbers, int count) {
  long sum = 0;
  for (int i = 0; i < count; i++)
#ifdef FIXED
    sum += numbers[i] * 2;
#else
    sum += numbers[i];
#endif
  return sum;
}
