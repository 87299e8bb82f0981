// A replaced operator new is the library's, too: libstdc++ allocates by it.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>

static int news;
void *operator new(std::size_t size) {
  news++;
  return std::malloc(size);
}
void operator delete(void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }

int main() {
  std::ostringstream out;
  int before = news;
  for (int i = 0; i < 1000; i++) out << "text that does not fit ";
  std::printf("%d\n", news > before);
}
