// All forms of operator new and delete replaced: what libstdc++ and a thread allocate comes
// from the program, what it frees goes back there, and its own forms call the program's.
// flags: -pthread
// gate: D
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <locale>
#include <memory_resource>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static long counts[8];
static long live;
static void *make(int form, std::size_t size, std::size_t align = 16) {
  __atomic_fetch_add(&counts[form], 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
  // A header, so that a block that goes to another allocator is noticed.
  if (align < 32) align = 32;
  char *block = static_cast<char *>(std::aligned_alloc(align, (size + 2 * align - 1) / align * align));
  if (!block) throw std::bad_alloc();
  block += align;
  reinterpret_cast<std::size_t *>(block)[-1] = 0xfeedface;
  reinterpret_cast<std::size_t *>(block)[-2] = align;
  return block;
}
static void drop(int form, void *p) {
  if (!p) return;
  __atomic_fetch_add(&counts[form], 1, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
  std::size_t *words = static_cast<std::size_t *>(p);
  if (words[-1] != 0xfeedface) {
    std::printf("a block from elsewhere\n");
    std::abort();
  }
  words[-1] = 0;
  std::free(static_cast<char *>(p) - words[-2]);
}

void *operator new(std::size_t size) { return make(0, size); }
void *operator new(std::size_t size, std::align_val_t align) { return make(1, size, static_cast<std::size_t>(align)); }
void operator delete(void *p) noexcept { drop(2, p); }
void operator delete(void *p, std::align_val_t) noexcept { drop(3, p); }
// Sized, array and nothrow forms are the library's, which call those above.

struct alignas(64) Wide { char bytes[64]; };
struct Odd { int x; ~Odd() { x = 0; } };

// What is seen elsewhere is not left out by the optimizer.
static void *volatile seen;
template <class T> static T *show(T *p) {
  seen = const_cast<void *>(static_cast<const volatile void *>(p));
  return p;
}

static void report(const char *what, long before) {
  std::printf("%s: %s\n", what, live == before ? "all freed" : "some live");
}

int main() {
  long before = live, made = counts[0];
  delete show(new int(3));
  delete[] show(new Odd[5]);
  delete show(new (std::nothrow) int(4));
  ::operator delete(show(::operator new(10)), std::size_t(10));
  ::operator delete[](show(::operator new[](10)), std::size_t(10));
  ::operator delete[](show(::operator new[](10, std::nothrow)), std::nothrow);
  delete show(new Wide);
  delete[] show(new Wide[3]);
  ::operator delete(show(::operator new(64, std::align_val_t(64))), std::size_t(64), std::align_val_t(64));
  std::printf("%ld %ld %ld %ld\n", counts[0] - made, counts[1], counts[2] >= 6, counts[3]);
  report("forms", before);

  made = counts[0];
  {
    std::ostringstream out;
    for (int i = 0; i < 100; i++) out << "a text that does not fit into the object " << i;
    std::string text = out.str(), twice = text + text;
    twice.insert(3, text);
    std::printf("%zu %d\n", twice.size(), counts[0] - made > 3);
  }
  report("streams", before);
  made = counts[0];
  {
    std::runtime_error error(std::string(100, 'x'));
    std::runtime_error copy = error;
    try {
      (void)std::vector<int>().at(7);
    } catch (const std::exception &e) {
      std::printf("%s\n", e.what());
    }
    std::printf("%d\n", counts[0] - made > 0);
  }
  report("exceptions", before);
  made = counts[0];
  std::thread([] {
    std::pmr::monotonic_buffer_resource pool;
    std::pmr::vector<int> v(&pool);
    for (int i = 0; i < 5000; i++) v.push_back(i);
    std::locale own(std::locale(), new std::numpunct<char>);
    std::ostringstream out;
    out.imbue(own);
    out << 1234567;
    std::printf("%s\n", out.str().c_str());
  }).join();
  std::printf("%d\n", counts[0] - made > 2);
  report("thread", before);
  {
    std::ifstream in("/dev/null");
    std::string line;
    while (std::getline(in, line)) {}
  }
  report("files", before);
}
