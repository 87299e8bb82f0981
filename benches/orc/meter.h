// What a run prints: phases that were timed, values that were read, and what went wrong.
//
//   phase NAME COUNT CPU_NS WALL_NS    COUNT operations took this, all threads together
//   value NAME NUMBER
//   reached NAME COUNT WHY             it was stopped there
//   failed TEXT                        the last line, with status 1
//
// A phase is everything between two looks at the clock, so that all phases together are the
// time of the run: the reader compares them with what the kernel says of the process.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include <malloc.h>
#include <unistd.h>

#include "llvm/Support/Error.h"

[[noreturn]] inline void fail(const std::string &Text) {
  std::printf("failed %s\n", Text.c_str());
  std::fflush(stdout);
  _exit(1);
}

inline void check(bool Holds, const char *What) {
  if (!Holds)
    fail(What);
}

inline void ok(llvm::Error Err) {
  if (Err)
    fail(llvm::toString(std::move(Err)));
}

template <typename T> T ok(llvm::Expected<T> Result) {
  if (!Result)
    fail(llvm::toString(Result.takeError()));
  return static_cast<T &&>(*Result);
}

inline double clockNs(clockid_t Clock) {
  timespec Time{};
  clock_gettime(Clock, &Time);
  return Time.tv_sec * 1e9 + Time.tv_nsec;
}

/// Prints what has passed since the last look as a phase of its own.
class Meter {
public:
  void phase(const char *Name, double Count) {
    double Cpu = clockNs(CLOCK_PROCESS_CPUTIME_ID);
    double Wall = clockNs(CLOCK_MONOTONIC);
    std::printf("phase %s %.0f %.0f %.0f\n", Name, Count, Cpu - LastCpu, Wall - LastWall);
    LastCpu = Cpu;
    LastWall = Wall;
  }

private:
  // The process's clock starts with the process: its start is in the first phase.
  double LastCpu = 0;
  double LastWall = clockNs(CLOCK_MONOTONIC);
};

inline void value(const char *Name, double Value) { std::printf("value %s %.6f\n", Name, Value); }

inline void reached(const char *Name, double Count, const std::string &Why) {
  std::printf("reached %s %.0f %s\n", Name, Count, Why.c_str());
}

/// Bytes of memory of this process that are resident, each page counted once; what the
/// allocator keeps for later is given back first.
inline double residentBytes() {
  malloc_trim(0);
  double Kib = 0;
  if (FILE *Rollup = std::fopen("/proc/self/smaps_rollup", "r")) {
    char Line[256];
    while (std::fgets(Line, sizeof Line, Rollup))
      if (std::sscanf(Line, "Pss: %lf kB", &Kib) == 1)
        break;
    std::fclose(Rollup);
  }
  return Kib * 1024;
}
