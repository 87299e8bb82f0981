// Many threads throw at once, from functions that are compiled meanwhile.
// flags: -pthread
// gate: C
// repeat: 3
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> destroyed{0};
struct Guard { ~Guard() { destroyed++; } };

template <int N> [[gnu::noinline]] static int thrower(int depth) {
  Guard guard;
  if (depth == 0) {
    if (N % 3 == 0) throw N;
    if (N % 3 == 1) throw std::runtime_error(std::to_string(N));
    throw static_cast<long>(N);
  }
  return thrower<N>(depth - 1) + 1;
}

template <int N> static long attempt(int depth) {
  try {
    return thrower<N>(depth);
  } catch (int n) {
    return n;
  } catch (const std::exception &e) {
    return std::stol(e.what());
  } catch (...) {
    return 1000;
  }
}

template <int... N> static long all(int shift, std::integer_sequence<int, N...>) {
  static long (*const table[])(int) = {attempt<N>...};
  long sum = 0;
  for (int i = 0; i < static_cast<int>(sizeof...(N)); i++)
    sum += table[(i * 5 + shift) % static_cast<int>(sizeof...(N))](shift % 7);
  return sum;
}

int main() {
  std::atomic<long> total{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 50; i++)
    threads.emplace_back([&, i] { total += all(i, std::make_integer_sequence<int, 48>()); });
  for (auto &t : threads) t.join();
  std::printf("%ld %ld\n", total.load(), destroyed.load());
}
