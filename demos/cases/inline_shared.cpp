// Inline variables, local statics, members of templates, tables of virtual functions, types:
// one of each in two files, an object and a library; begun once, ended once. The object is to
// reach them wherever they are.
// flags: -fPIC
// extra: inline_shared_other.cpp
// object: inline_shared_object.cpp
// library: inline_shared_library.cpp
#include "parts/inline_shared.h"

ALL(first)
DECLARE(other)
DECLARE(object)
DECLARE(library)

static void compare(const char *who, const Seen &one, const Seen &two) {
  std::printf("%s: %d %d %d %d %d %d %d\n", who, one.variable == two.variable,
              one.local == two.local, one.table == two.table, one.holder == two.holder,
              one.type == two.type, one.begun == two.begun, one.here == two.here);
}

int main() {
  const Seen own = first_seen();
  compare("other", own, other_seen());
  compare("object", own, object_seen());
  compare("library", own, library_seen());
  Shape *(*const makers[])() = {first_make, other_make, object_make, library_make};
  int (*const askers[])(Shape *) = {first_sides, other_sides, object_sides, library_sides};
  void (*const throwers[])(int) = {first_throw, other_throw, object_throw, library_throw};
  int (*const catchers[])(void (*)(int), int) = {first_catch, other_catch, object_catch,
                                                 library_catch};
  int sum = 0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      Shape *shape = makers[i]();
      sum = sum * 3 % 100003 + askers[j](shape) + catchers[j](throwers[i], 10 * i + j);
      delete shape;
    }
  std::printf("%d\n", sum);
  variable.value += 1;
  local().value += 1;
  Holder<int>::noted.value += table[4];
  ++here;
  std::printf("%d %d\n", *library_seen().here, *other_seen().here);
}
