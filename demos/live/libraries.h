// What the program and the library of `libraries.cpp` share.
#pragma once
#include <stdexcept>

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Shape {
  virtual ~Shape() {}
  virtual int sides() const { return 3; }
};

// One counter in the whole process.
inline int counted(int by) {
  static int counter = 100;
  return counter += by;
}

extern "C" {
extern int shared_value;
int interposed(int x);
int ask_interposed(int x);
int weak_interposed(int x);
int ask_weak(int x);
int shared_changed(int by);
int of_both(int x);
int library_of_both(int x);
typedef int (*callback)(int);
callback library_callback(void);
bool is_library_callback(callback one);
int call_back(callback one, int x);
int thread_count(void);
unsigned thread_value(void);
int thread_value_of_both(void);
int loader_of(const void *address);
int begun(void);
}
int library_counted(int by);
void library_throws(int value);
int library_catches(void (*thrower)(int), int value);
Shape *library_shape();
bool is_plain(const Shape &shape);
long work(const int *numbers, int count);
