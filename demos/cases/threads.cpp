// std::thread, mutex, condition_variable, shared_mutex, atomics, jthread with stop token.
// flags: -pthread -std=c++20
// gate: C
// repeat: 3
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <stop_token>
#include <thread>
#include <vector>

class Queue {
 public:
  void push(int v) {
    { std::lock_guard lock(mutex); items.push_back(v); }
    ready.notify_one();
  }
  int pop() {
    std::unique_lock lock(mutex);
    ready.wait(lock, [this] { return !items.empty(); });
    int v = items.front();
    items.pop_front();
    return v;
  }

 private:
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<int> items;
};

int main() {
  Queue queue;
  std::atomic<long> total{0};
  std::vector<std::thread> consumers;
  for (int i = 0; i < 8; i++)
    consumers.emplace_back([&] { for (int v; (v = queue.pop()) >= 0;) total += v; });
  for (int i = 0; i < 2000; i++) queue.push(i);
  for (int i = 0; i < 8; i++) queue.push(-1);
  for (auto &c : consumers) c.join();
  std::printf("%ld\n", total.load());

  std::shared_mutex shared;
  std::vector<int> data;
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < 16; i++)
      writers.emplace_back([&, i] {
        { std::unique_lock lock(shared); data.push_back(i); }
        std::shared_lock lock(shared);
        total += static_cast<long>(data.size()) * 0;
      });
  }
  std::printf("%d\n", std::accumulate(data.begin(), data.end(), 0));
  std::jthread stopped([](std::stop_token token) { while (!token.stop_requested()) std::this_thread::yield(); });
  stopped.request_stop();
  stopped.join();
  std::recursive_mutex recursive;
  std::scoped_lock both(recursive, shared);
  std::lock_guard again(recursive);
  std::printf("%d\n", std::thread::hardware_concurrency() > 0);
}
