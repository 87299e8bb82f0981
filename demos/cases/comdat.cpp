// Inline functions, templates, inline variables and vtables in two modules: one of each.
// extra: comdat_other.cpp
// gate: B
#include <cstdio>

inline int inline_function(int x) { return x + 1; }
inline int *inline_static() { static int value = 10; return &value; }
template <class T> T twice(T x) { static int calls = 0; return x + x + ++calls * 0; }
template <class T> int &counter() { static int n = 0; return n; }
inline int inline_variable = 5;
struct Inline {
  virtual ~Inline() = default;
  virtual int f() { return 7; }
};

typedef int function(int);
function *other_inline_function();
int *other_inline_static();
int *other_inline_variable();
int other_counter();
double (*other_twice())(double);
Inline *other_object();

int main() {
  std::printf("%d\n", other_inline_function() == inline_function);
  ++*inline_static();
  std::printf("%d %d\n", other_inline_static() == inline_static(), *other_inline_static());
  std::printf("%d\n", other_inline_variable() == &inline_variable);
  counter<int>() += 3;
  std::printf("%d %d\n", other_counter(), counter<int>());
  std::printf("%d %g\n", other_twice() == twice<double>, twice(1.5));
  Inline *object = other_object();
  Inline mine;
  std::printf("%d %d\n", object->f(), *reinterpret_cast<void **>(object) == *reinterpret_cast<void **>(&mine));
  delete object;
}
