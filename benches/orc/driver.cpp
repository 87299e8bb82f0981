// LLVM's ORC, driven as an embedder would through its C++ interface: the peer of rows of the
// benchmarks, which compile this file when they run. Own code, on LLJIT and LLLazyJIT with
// their defaults.
//
// usage: driver SCENARIO ARGUMENTS. What each prints is told in meter.h. Each checks what it
// looked up by calling it.

#include <cstring>

#include <sys/resource.h>

#include "llvm/Support/TargetSelect.h"

#include "code.h"
#include "meter.h"
#include "symbols.h"

static void run(const std::vector<std::string> &Words) {
  auto Is = [&](const char *Name, size_t Arguments) {
    return Words[0] == Name && Words.size() == Arguments + 1;
  };
  auto Number = [&](size_t At) { return size_t(std::strtoull(Words[At].c_str(), nullptr, 10)); };
  auto Text = [&](size_t At) { return Words[At].c_str(); };
  Meter Time;
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::InitializeNativeTargetAsmParser();
  if (Is("lookups", 2))
    lookups(Time, Number(1), Number(2));
  else if (Is("publish", 2))
    publish(Time, Number(1), Number(2));
  else if (Is("pending", 3))
    pending(Time, Words[1] == "working", Number(2), Number(3));
  else if (Is("aliases", 2))
    aliases(Time, Number(1), Number(2));
  else if (Is("graph", 3))
    graph(Time, Words[1] == "unit", Words[2] == "ring", Number(3));
  else if (Is("object-graph", 2))
    objectGraph(Time, Text(1), Number(2));
  else if (Is("modules", 5))
    modules(Time, Text(1), Text(2), Number(3), Number(4), double(Number(5)));
  else if (Is("archive", 4))
    archive(Time, Text(1), Number(2), Number(3), Number(4));
  else if (Is("lazy", 3))
    lazy(Time, Text(1), Words[2] == "together", Number(3));
  else
    fail("unknown scenario " + Words[0]);
}

int main(int Count, char **Words) {
  if (Count < 2)
    fail("usage: driver SCENARIO ARGUMENTS");
  std::vector<std::string> All(Words + 1, Words + Count);
  // ORC materializes what a unit needs inside of it: chains want a deep stack, which only a
  // new thread gets, or this program after it has set its limit and started over.
  rlimit Stack{};
  getrlimit(RLIMIT_STACK, &Stack);
  const rlim_t Wanted = rlim_t(4) << 30;
  bool Enough = Stack.rlim_cur == RLIM_INFINITY || Stack.rlim_cur >= Wanted;
  if (!Enough && (Stack.rlim_max == RLIM_INFINITY || Stack.rlim_max >= Wanted)) {
    Stack.rlim_cur = Wanted;
    if (!setrlimit(RLIMIT_STACK, &Stack))
      execv("/proc/self/exe", Words);
  }
  run(All);
  std::fflush(stdout);
  // Taking a session apart is no part of a row; neither is unloading LLVM.
  _exit(0);
}
