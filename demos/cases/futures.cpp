// call_once, async, promise, packaged_task: libstdc++ keeps thread-locals of its own for
// these, which must be those of the program too.
// flags: -pthread
// gate: C
// repeat: 2
#include <cstdio>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::once_flag flag;
static int made;

__attribute__((noinline)) static int slow_square(int x) { return x * x; }

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; i++)
    threads.emplace_back([] { std::call_once(flag, [] { made++; }); });
  for (auto &t : threads) t.join();
  std::printf("%d\n", made);

  std::vector<std::future<int>> results;
  for (int i = 0; i < 20; i++) results.push_back(std::async(std::launch::async, slow_square, i));
  int sum = 0;
  for (auto &r : results) sum += r.get();
  std::printf("%d\n", sum);

  auto failing = std::async(std::launch::async, []() -> int { throw std::runtime_error("in a task"); });
  try {
    failing.get();
  } catch (const std::runtime_error &e) {
    std::printf("%s\n", e.what());
  }
  std::promise<int> promise;
  auto future = promise.get_future();
  std::thread setter([&] { promise.set_value_at_thread_exit(7); });
  std::printf("%d\n", future.get());
  setter.join();
  std::packaged_task<int(int)> task([](int x) { return x + 1; });
  auto packaged = task.get_future();
  std::thread(std::move(task), 41).join();
  std::printf("%d\n", packaged.get());
  auto deferred = std::async(std::launch::deferred, [] { return 3; });
  std::printf("%d\n", deferred.get());
  std::future<int> orphan = std::promise<int>().get_future();
  try {
    orphan.get();
  } catch (const std::future_error &) {
    std::printf("broken promise\n");
  }
}
