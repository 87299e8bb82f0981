// thread_local objects: constructed at first use in each thread, destroyed when it
// ends, on the main thread before static objects; with other threads still there.
// flags: -pthread
// gate: C
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

struct Loud {
  std::string name;
  explicit Loud(std::string n) : name(std::move(n)) { std::printf("+%s\n", name.c_str()); }
  ~Loud() { std::printf("-%s\n", name.c_str()); }
};

static Loud global("global");
thread_local Loud per_thread("per thread");
thread_local std::vector<int> numbers{1, 2, 3};
static thread_local int plain = 5;

struct Holder {
  static thread_local Loud member;
};
thread_local Loud Holder::member("member");

static void use(const char *who) {
  thread_local Loud local(std::string("local of ") + who);
  numbers.push_back(plain++);
  std::printf("%s %zu %d %s\n", who, numbers.size(), plain, per_thread.name.c_str());
}

int main() {
  use("main");
  std::thread([] { use("first"); use("first"); }).join();
  std::thread([] { use("second"); Holder::member.name = "renamed"; }).join();
  std::thread([] {}).join();
  use("main");
  std::printf("end of main\n");
}
