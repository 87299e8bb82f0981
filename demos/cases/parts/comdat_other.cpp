// The same inline entities as in comdat.cpp.
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
function *other_inline_function() { return inline_function; }
int *other_inline_static() { return inline_static(); }
int *other_inline_variable() { return &inline_variable; }
int other_counter() { return counter<int>() += 4; }
double (*other_twice())(double) { return twice<double>; }
Inline *other_object() { return new Inline; }
