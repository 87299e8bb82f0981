// Replaced allocation functions are used by the program's own code.
// gate: C
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

static int news, deletes;
void *operator new(std::size_t size) {
  news++;
  return std::malloc(size);
}
void operator delete(void *p) noexcept {
  deletes++;
  std::free(p);
}
void operator delete(void *p, std::size_t) noexcept {
  deletes++;
  std::free(p);
}

struct alignas(64) Aligned { char data[64]; };

int main() {
  int before = news;
  { auto p = std::make_unique<int>(5); }
  { std::vector<int> v; for (int i = 0; i < 100; i++) v.push_back(i); }
  std::printf("%d %d\n", news - before > 5, news - before == deletes);
  auto aligned = std::make_unique<Aligned>();
  std::printf("%d\n", reinterpret_cast<std::size_t>(aligned.get()) % 64 == 0);
  try {
    (void)::operator new(static_cast<std::size_t>(-1) / 4, std::align_val_t(64));
  } catch (const std::bad_alloc &) {
    std::printf("bad_alloc\n");
  }
}
