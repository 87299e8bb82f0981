// The program's operator new throws out of the C++ library, and its new-handler is called from
// there; forms for wide types that it leaves out are the library's.
// gate: D
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

static long left = 1 << 20, live, refused;
struct Refused : std::bad_alloc {
  const char *what() const noexcept override { return "refused by the program"; }
};
void *operator new(std::size_t size) {
  while (true) {
    if (static_cast<long>(size) <= left)
      if (void *p = std::malloc(size)) {
        live++;
        return p;
      }
    refused++;
    std::new_handler handler = std::get_new_handler();
    if (!handler) throw Refused();
    handler();
  }
}
void operator delete(void *p) noexcept {
  if (p) live--;
  std::free(p);
}

static void *volatile seen;
struct alignas(128) Wide { char bytes[128]; };

int main() {
  long before = live;
  std::string text = "a text that is kept where no small object has room for it";
  try {
    for (int i = 0; i < 30; i++) text += text;
  } catch (const std::bad_alloc &error) {
    std::printf("%s, %ld\n", error.what(), refused);
  }
  try {
    std::ostringstream out;
    out.exceptions(std::ios::badbit);
    out << std::string(200000, 'x');
    left = 100000;
    out << std::string(50000, 'y');
    for (int i = 0; i < 10; i++) out << out.str();
    std::puts("not refused");
  } catch (const std::exception &error) {
    std::printf("%s\n", error.what());
  }
  std::set_new_handler([] { left += 1 << 20; });
  std::vector<char> wide(500000);
  // Or nothing is allocated where it can be seen that nobody looks.
  seen = wide.data();
  std::printf("%zu %ld\n", wide.size(), refused > 2);
  std::set_new_handler(nullptr);
  left = 10;
  seen = new (std::nothrow) int[100];
  std::printf("%d\n", seen == nullptr);
  left = 1 << 20;
  seen = new Wide;
  delete static_cast<Wide *>(seen);
  std::printf("%d\n", live > before);
}
