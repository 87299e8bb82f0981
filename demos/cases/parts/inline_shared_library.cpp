#include "inline_shared.h"
ALL(library)
int begin(const char *what, int value) {
  std::printf("begin of %s\n", what);
  return value;
}
