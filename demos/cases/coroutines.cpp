// Coroutines: generators, tasks that await each other, exceptions through a suspension,
// destruction before the end.
// flags: -std=c++20
// gate: C
#include <coroutine>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

struct Noisy {
  const char *name;
  ~Noisy() { std::printf("~%s\n", name); }
};

struct Generator {
  struct promise_type {
    int value;
    std::exception_ptr error;
    Generator get_return_object() { return Generator{Handle::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int v) { value = v; return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;
  Handle handle;
  explicit Generator(Handle h) : handle(h) {}
  Generator(Generator &&o) noexcept : handle(std::exchange(o.handle, {})) {}
  ~Generator() { if (handle) handle.destroy(); }
  bool next() {
    handle.resume();
    if (handle.promise().error) std::rethrow_exception(handle.promise().error);
    return !handle.done();
  }
  int value() const { return handle.promise().value; }
};

static Generator fibonacci(int limit) {
  Noisy noisy{"fibonacci"};
  int a = 0, b = 1;
  while (a < limit) {
    co_yield a;
    a = std::exchange(b, a + b);
  }
  if (limit == 7) throw std::runtime_error("seven");
}

struct Task {
  struct promise_type {
    int value = 0;
    std::coroutine_handle<> waiting;
    Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        return h.promise().waiting ? h.promise().waiting : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_value(int v) { value = v; }
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
    handle.promise().waiting = h;
    return handle;
  }
  int await_resume() { int v = handle.promise().value; handle.destroy(); return v; }
};

static Task leaf(int n) { co_return n * n; }
static Task sum(int n) {
  int total = 0;
  for (int i = 1; i <= n; i++) total += co_await leaf(i);
  co_return total;
}

int main() {
  for (auto g = fibonacci(50); g.next();) std::printf("%d ", g.value());
  std::printf("\n");
  try {
    for (auto g = fibonacci(7); g.next();) std::printf("%d ", g.value());
  } catch (const std::exception &e) {
    std::printf("%s\n", e.what());
  }
  {
    auto early = fibonacci(1000);
    early.next();
    std::printf("destroyed while suspended\n");
  }
  Task task = sum(100);
  task.handle.resume();
  std::printf("%d\n", task.await_resume());
}
