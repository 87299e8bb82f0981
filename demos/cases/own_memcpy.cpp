// A program that defines functions which libraries use, as the C++ library does: theirs are the
// program's then, but not on threads that the program did not make.
#include <cstdio>
#include <pthread.h>
#include <sstream>
#include <string>

static pthread_t first;
static int known, elsewhere, calls;

extern "C" void *memcpy(void *to, const void *from, __SIZE_TYPE__ count) {
  char *volatile target = static_cast<char *>(to);
  const char *volatile source = static_cast<const char *>(from);
  for (__SIZE_TYPE__ at = 0; at < count; at++)
    target[at] = source[at];
  calls++;
  elsewhere += known && !pthread_equal(pthread_self(), first);
  return to;
}

extern "C" __SIZE_TYPE__ strlen(const char *text) {
  const char *volatile at = text;
  while (*at != 0)
    at = at + 1;
  elsewhere += known && !pthread_equal(pthread_self(), first);
  return static_cast<__SIZE_TYPE__>(at - text);
}

__attribute__((noinline)) static std::size_t work(int rounds) {
  std::size_t sum = 0;
  for (int round = 0; round < rounds; round++) {
    std::ostringstream text;
    text << "round " << round << " of many, longer than what fits in place";
    std::string copy = text.str() + text.str();
    sum += copy.size() + static_cast<unsigned char>(copy[copy.size() / 2]);
  }
  return sum;
}

int main() {
  first = pthread_self();
  known = 1;
  std::size_t sum = work(20000);
  std::printf("%zu, called: %d, elsewhere: %d\n", sum, calls != 0, elsewhere);
}
