// Local statics whose constructors race, recurse into others, and throw at first.
// flags: -pthread
// gate: C
// repeat: 5
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

static std::atomic<int> made{0}, tries{0};
struct Once {
  int value;
  explicit Once(int v) : value(v) { std::this_thread::yield(); made++; }
};
struct Fragile {
  Fragile() { if (tries++ < 3) throw 1; }
  int value = 9;
};

static Once &inner() { static Once object(5); return object; }
static Once &outer() { static Once object(inner().value + 1); return object; }
static Fragile &fragile() { static Fragile object; return object; }

int main() {
  std::vector<std::thread> threads;
  std::atomic<int> sum{0}, failures{0};
  for (int i = 0; i < 32; i++)
    threads.emplace_back([&] {
      sum += outer().value;
      for (;;) {
        try { sum += fragile().value; break; } catch (int) { failures++; }
      }
    });
  for (auto &t : threads) t.join();
  std::printf("%d %d %d %d\n", made.load(), sum.load(), failures.load(), tries.load());
}
