// What all files of the case have: one instance of each, also in the library they use.
#pragma once
#include <cstdio>
#include <cstring>
#include <exception>
#include <typeinfo>

int begin(const char *what, int value);

struct Noted {
  const char *name;
  int value;
  Noted(const char *name, int value) : name(name), value(begin(name, value)) {}
  ~Noted() { std::printf("end of %s %d\n", name, value); }
};

inline Noted variable("variable", 1);
inline Noted &local() {
  static Noted noted("local", 10);
  return noted;
}
inline thread_local int here = 5;
inline const int table[] = {2, 3, 5, 7, 11};

template <class T> struct Holder {
  static T value;
  static Noted noted;
};
template <class T> T Holder<T>::value = 3;
template <class T> Noted Holder<T>::noted("holder", 20);

struct Shape {
  virtual ~Shape() {}
  virtual int sides() const { return 0; }
};
struct Square : Shape {
  int sides() const override { return 4; }
};
struct Thrown : std::exception {
  int value;
  explicit Thrown(int value) : value(value) {}
  const char *what() const noexcept override { return "thrown"; }
};

struct Seen {
  const void *variable, *local, *table, *holder, *type, *begun;
  int *here;
};
inline Seen seen() {
  return {&variable, &local(), table, &Holder<int>::value, &typeid(Square), &Holder<int>::noted, &here};
}

#define ALL(name)                                                                     \
  Seen name##_seen() { return seen(); }                                               \
  Shape *name##_make() { return new Square; }                                         \
  int name##_sides(Shape *shape) {                                                    \
    Square *square = dynamic_cast<Square *>(shape);                                   \
    return square ? square->sides() : -1;                                             \
  }                                                                                   \
  void name##_throw(int value) { throw Thrown(value); }                               \
  int name##_catch(void (*thrower)(int), int value) {                                 \
    try {                                                                             \
      thrower(value);                                                                 \
    } catch (const Thrown &thrown) {                                                  \
      return thrown.value;                                                            \
    } catch (...) {                                                                   \
      return -1;                                                                      \
    }                                                                                 \
    return -2;                                                                        \
  }
#define DECLARE(name)                                                                 \
  Seen name##_seen();                                                                 \
  Shape *name##_make();                                                               \
  int name##_sides(Shape *shape);                                                     \
  void name##_throw(int value);                                                       \
  int name##_catch(void (*thrower)(int), int value);
