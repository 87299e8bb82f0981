// A failed assertion says where, and aborts.
// signal: SIGABRT
#include <assert.h>
#include <string.h>

int main(int argc, char **argv) {
  (void)argv;
  assert(strlen("text") == (size_t)argc + 3);
  assert(argc == 99);
}
