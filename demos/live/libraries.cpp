// A program of two files, one of which is a shared library: names that both define, a variable that
// may be copied, exceptions both ways, addresses that are compared, copies of the process.
#include "libraries.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#define LEFT_ALONE __attribute__((noinline))

extern "C" {
LEFT_ALONE int interposed(int x) { return x + 1000; }
LEFT_ALONE int weak_interposed(int x) { return x + 2000; }
LEFT_ALONE int of_both(int x) { return x * 5; }
__thread int value_of_both = 900;
LEFT_ALONE int own_value(void) { return value_of_both += 2; }
}

struct Square : Shape {
  int sides() const override { return 4; }
};

static void thrower(int value) {
  if (value % 5 == 0) throw Thrown("from main");
}

LEFT_ALONE int caught(int value) {
  try {
    library_throws(value);
    return 0;
  } catch (const Thrown &thrown) {
    return static_cast<int>(std::strlen(thrown.what()));
  }
}

static int own_callback(int x) { return x - 1; }

LEFT_ALONE long round(int number) {
  long sum = interposed(number) + 3 * ask_interposed(number) + 13 * ask_weak(number);
  shared_value += 2;
  sum += shared_changed(1) + 5 * shared_value;
  sum += counted(1) + 7 * library_counted(2);
  sum += of_both(number) + library_of_both(number);
  sum += caught(number) + 11 * library_catches(thrower, number);
  callback given = library_callback();
  sum += is_library_callback(given) + 2 * is_library_callback(own_callback);
  sum += call_back(given, number) + call_back(own_callback, number);
  Shape *shape = library_shape();
  Square square;
  sum += shape->sides() + is_plain(*shape) + 2 * is_plain(square) + (typeid(*shape) == typeid(Shape));
  delete shape;
  int numbers[64];
  for (int i = 0; i < 64; i++) numbers[i] = i ^ number;
  sum += thread_count() + int(thread_value() & 255) + own_value();
  return sum + work(numbers, 64) + thread_value_of_both();
}

LEFT_ALONE long rounds(int from, int count) {
  long sum = 0;
  for (int i = 0; i < count; i++) sum = sum * 31 % 1000003 + round(from + i);
  return sum;
}

LEFT_ALONE int opened(const char *file) {
  int sum = 0;
  for (int i = 0; i < 50; i++) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) return -1;
    auto call = reinterpret_cast<int (*)(int)>(dlsym(library, "opened_work"));
    for (int j = 0; j < 100; j++) sum ^= call(i + j);
    dlclose(library);
  }
  // Open to the end, where it is told of.
  dlopen(file, RTLD_NOW | RTLD_LOCAL);
  return sum;
}

// Serves `uruk swap`'s test: says what the library computes whenever a line comes.
static int serve() {
  char line[64];
  int numbers[4] = {1, 2, 3, 4};
  std::printf("ready\n");
  std::fflush(stdout);
  while (std::fgets(line, sizeof line, stdin)) {
    std::printf("%ld\n", work(numbers, 4));
    std::fflush(stdout);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && !std::strcmp(argv[1], "serve")) return serve();
  std::printf("%d\n", begun());
  std::printf("%ld\n", rounds(0, 20000));
  long other = 0;
  std::thread([&] { other = rounds(7, 5000); }).join();
  std::printf("%ld\n", other);
  for (int i = 0; i < 4; i++) {
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      std::printf("%d: %ld\n", i, rounds(i, 2000));
      std::fflush(stdout);
      _exit(i);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("%d\n", WEXITSTATUS(status));
  }
  if (argc > 1) std::printf("%d\n", opened(argv[1]));
  std::printf("%ld\n", rounds(3, 20000));
}
