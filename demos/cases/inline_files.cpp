// As inline_shared.cpp, without a library: modules and an object are one program.
// extra: inline_shared_other.cpp inline_files_common.c
// object: inline_shared_object.cpp
#include "parts/inline_shared.h"

ALL(first)
DECLARE(other)
DECLARE(object)

extern "C" {
extern int common_number;
__attribute__((weak)) int weak_number = 7;
__attribute__((weak)) int weak_function() { return 1; }
int *common_at();
int *weak_at();
int weak_call();
}

int begin(const char *what, int value) {
  std::printf("begin of %s\n", what);
  return value;
}

static void compare(const char *who, const Seen &one, const Seen &two) {
  std::printf("%s: %d %d %d %d %d %d %d\n", who, one.variable == two.variable,
              one.local == two.local, one.table == two.table, one.holder == two.holder,
              one.type == two.type, one.begun == two.begun, one.here == two.here);
}

int main() {
  const Seen own = first_seen();
  compare("other", own, other_seen());
  compare("object", own, object_seen());
  std::printf("%d\n", first_catch(object_throw, 3) + object_catch(other_throw, 4));
  Shape *shape = object_make();
  std::printf("%d\n", first_sides(shape) + other_sides(shape));
  delete shape;
  common_number = 9;
  std::printf("%d %d\n", common_at() == &common_number, *common_at());
  std::printf("%d %d %d\n", weak_at() == &weak_number, weak_number, weak_call() == weak_function());
  variable.value += 1;
  local().value += 1;
}
