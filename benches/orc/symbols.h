// What concerns symbols only: no code is compiled or linked. Addresses are those of functions
// of this program, which are called through what a lookup gives.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"

#include "meter.h"

namespace orc = llvm::orc;

inline std::unique_ptr<orc::LLJIT> makeJit() { return ok(orc::LLJITBuilder().create()); }

/// One that stays until the process ends. Taking it apart is no part of a row, and where
/// trackers of what waits were removed it crashes.
inline orc::LLJIT &makeLastingJit() { return *makeJit().release(); }

template <int N> int number() { return N; }
using Function = int (*)();
/// Symbol n stands for the function that returns n % 4.
inline orc::ExecutorSymbolDef target(size_t N) {
  static Function All[] = {number<0>, number<1>, number<2>, number<3>};
  return {orc::ExecutorAddr::fromPtr(All[N % 4]), llvm::JITSymbolFlags::Exported};
}
inline bool answers(orc::ExecutorAddr At, size_t N) {
  return At.toPtr<Function>()() == int(N % 4);
}

/// A unit of symbols, all of which are asked for together. `Materialize` is given the
/// responsibility.
class Custom : public orc::MaterializationUnit {
public:
  using Work = std::function<void(std::unique_ptr<orc::MaterializationResponsibility>)>;
  Custom(orc::SymbolFlagsMap Symbols, Work Materialize)
      : MaterializationUnit(Interface(std::move(Symbols), nullptr)),
        Materialize(std::move(Materialize)) {}
  llvm::StringRef getName() const override { return "custom"; }
  void materialize(std::unique_ptr<orc::MaterializationResponsibility> R) override {
    Materialize(std::move(R));
  }

private:
  void discard(const orc::JITDylib &, const orc::SymbolStringPtr &) override {}
  Work Materialize;
};

inline std::unique_ptr<Custom> trivial(const orc::SymbolStringPtr &Name, size_t N) {
  auto Work = [Name, N](std::unique_ptr<orc::MaterializationResponsibility> R) {
    ok(R->notifyResolved({{Name, target(N)}}));
    ok(R->notifyEmitted({}));
  };
  return std::make_unique<Custom>(orc::SymbolFlagsMap{{Name, llvm::JITSymbolFlags::Exported}},
                                  Work);
}

inline std::vector<orc::SymbolStringPtr> names(orc::ExecutionSession &ES, const char *Prefix,
                                               size_t Count) {
  std::vector<orc::SymbolStringPtr> All;
  for (size_t N = 0; N < Count; ++N)
    All.push_back(ES.intern(Prefix + std::to_string(N)));
  return All;
}

// ---- ready lookups ----

/// Nanoseconds in which this thread was ready to run and others had its processor.
inline double delayNs() {
  unsigned long long Ran = 0, Delay = 0;
  if (FILE *Stat = std::fopen("/proc/thread-self/schedstat", "r")) {
    if (std::fscanf(Stat, "%llu %llu", &Ran, &Delay) != 2)
      Delay = 0;
    std::fclose(Stat);
  }
  return double(Delay);
}

inline void pin(size_t Index) {
  cpu_set_t Allowed, One;
  CPU_ZERO(&One);
  if (sched_getaffinity(0, sizeof Allowed, &Allowed))
    return;
  size_t Place = Index % CPU_COUNT(&Allowed);
  for (int Cpu = 0; Cpu < CPU_SETSIZE; ++Cpu)
    if (CPU_ISSET(Cpu, &Allowed) && Place-- == 0)
      CPU_SET(Cpu, &One);
  sched_setaffinity(0, sizeof One, &One);
}

/// `Count` calls on each of some threads that start together. Prints the wall-clock time from
/// the first start to the last end, and which part of it others had the processors.
inline void race(const std::string &Name, size_t Threads, size_t Count,
                 const std::function<uint64_t(size_t)> &Once) {
  struct Run {
    double Start, End, Delay;
  };
  std::vector<Run> Runs(Threads);
  std::vector<std::thread> All;
  std::atomic<size_t> Arrived{0};
  std::atomic<uint64_t> Sum{0};
  for (size_t T = 0; T < Threads; ++T)
    All.emplace_back([&, T] {
      pin(T);
      ++Arrived;
      while (Arrived.load() < Threads)
        ;
      double Delay = delayNs(), Start = clockNs(CLOCK_MONOTONIC);
      uint64_t Own = 0;
      for (size_t N = 0; N < Count; ++N)
        Own += Once(N);
      double End = clockNs(CLOCK_MONOTONIC);
      Runs[T] = {Start, End, delayNs() - Delay};
      Sum += Own;
    });
  for (auto &Thread : All)
    Thread.join();
  double Start = Runs[0].Start, End = Runs[0].End, Delay = 0;
  for (auto &One : Runs) {
    Start = std::min(Start, One.Start);
    End = std::max(End, One.End);
    Delay = std::max(Delay, One.Delay);
  }
  uint64_t Expected = 0;
  for (size_t N = 0; N < Count; ++N)
    Expected += target(N % 1000).getAddress().getValue();
  check(Sum == Expected * Threads, "a lookup gave another address");
  std::printf("race %s %zu %.0f %.6f\n", Name.c_str(), Threads * Count, End - Start,
              Delay / (End - Start));
}

/// READY symbols, looked up by name, by symbol, in batches, and in the last of ten dylibs.
inline void lookups(Meter &Time, size_t Rounds, size_t Count) {
  const size_t Ready = 1000, Batch = 20, Deep = 10;
  auto &Jit = makeLastingJit();
  auto &ES = Jit.getExecutionSession();
  auto &Main = Jit.getMainJITDylib();
  auto Symbols = names(ES, "function_", Ready);
  std::vector<std::string> Strings;
  orc::SymbolMap All;
  for (size_t N = 0; N < Ready; ++N) {
    Strings.push_back("function_" + std::to_string(N));
    All[Symbols[N]] = target(N);
  }
  ok(Main.define(orc::absoluteSymbols(All)));
  // A symbol of its own in each dylib in front, so that none is empty.
  orc::JITDylibSearchOrder Order;
  for (size_t N = 0; N + 1 < Deep; ++N) {
    auto &Front = ok(Jit.createJITDylib("front" + std::to_string(N)));
    auto Own = ES.intern("own_" + std::to_string(N));
    ok(Front.define(orc::absoluteSymbols({{Own, target(N)}})));
    ok(ES.lookup({&Front}, Own));
    Order.push_back({&Front, orc::JITDylibLookupFlags::MatchExportedSymbolsOnly});
  }
  Order.push_back({&Main, orc::JITDylibLookupFlags::MatchExportedSymbolsOnly});
  auto InMain = orc::makeJITDylibSearchOrder(&Main);
  auto Address = [](const orc::ExecutorSymbolDef &Def) { return Def.getAddress().getValue(); };
  for (size_t N = 0; N < Ready; ++N)
    check(answers(ok(Jit.lookup(Strings[N])), N), "a symbol stands for something else");
  auto ByName = [&](size_t N) { return ok(Jit.lookup(Strings[N % Ready])).getValue(); };
  auto BySymbol = [&](size_t N) { return Address(ok(ES.lookup(InMain, Symbols[N % Ready]))); };
  auto TenDeep = [&](size_t N) { return Address(ok(ES.lookup(Order, Symbols[N % Ready]))); };
  // Every Batch-th call looks that many up.
  auto InBatches = [&](size_t N) -> uint64_t {
    if (N % Batch)
      return 0;
    orc::SymbolLookupSet Set;
    for (size_t At = N; At < N + Batch; ++At)
      Set.add(Symbols[At % Ready]);
    uint64_t Sum = 0;
    for (auto &Found : ok(ES.lookup(InMain, std::move(Set))))
      Sum += Address(Found.second);
    return Sum;
  };
  Time.phase("setup", 1);
  for (size_t Round = 0; Round < Rounds; ++Round)
    for (size_t Threads : {1, 2}) {
      auto Suffix = "_" + std::to_string(Threads);
      race("name" + Suffix, Threads, Count, ByName);
      race("symbol" + Suffix, Threads, Count, BySymbol);
      race("batch" + Suffix, Threads, 4 * Count, InBatches);
      race("deep" + Suffix, Threads, Count, TenDeep);
    }
  Time.phase("races", 1);
}

// ---- publication, and others that are pending ----

inline void publish(Meter &Time, size_t Rounds, size_t Count) {
  for (size_t Round = 0; Round < Rounds; ++Round) {
    auto Jit = makeJit();
    auto &ES = Jit->getExecutionSession();
    auto &Main = Jit->getMainJITDylib();
    auto Symbols = names(ES, "symbol_", Count);
    Time.phase("setup", 1);
    for (size_t N = 0; N < Count; ++N) {
      ok(Main.define(trivial(Symbols[N], N)));
      check(answers(ok(ES.lookup({&Main}, Symbols[N])).getAddress(), N), "another address");
    }
    Time.phase("publish", Count);
    Symbols.clear();
    Jit.reset();
    Time.phase("teardown", 1);
  }
}

/// Small trackers come and go beside `Others` pending symbols. With `Working`, those are in
/// units at work, and the small ones become ready. Otherwise all are emitted, and each waits
/// for another one whose unit is at work: the trackers go while theirs wait.
inline void pending(Meter &Time, bool Working, size_t Others, size_t Small) {
  using Responsibility = std::unique_ptr<orc::MaterializationResponsibility>;
  auto &Jit = makeLastingJit();
  auto &ES = Jit.getExecutionSession();
  auto &Main = Jit.getMainJITDylib();
  auto Symbols = names(ES, "pending_", Others), Needed = names(ES, "needed_", Others);
  auto Own = names(ES, "small_", Small);
  std::vector<Responsibility> Held;
  auto Hold = [&](Responsibility R) { Held.push_back(std::move(R)); };
  auto Waits = [&](const orc::SymbolStringPtr &Name, const orc::SymbolStringPtr &For, size_t N) {
    return [&Main, Name, For, N](Responsibility R) {
      ok(R->notifyResolved({{Name, target(N)}}));
      ok(R->notifyEmitted({{{Name}, {{&Main, {For}}}}}));
    };
  };
  auto Define = [&](const orc::SymbolStringPtr &Name, Custom::Work Work,
                    orc::ResourceTrackerSP Tracker = nullptr) {
    orc::SymbolFlagsMap One{{Name, llvm::JITSymbolFlags::Exported}};
    ok(Main.define(std::make_unique<Custom>(One, std::move(Work)), std::move(Tracker)));
  };
  // Whoever waits for nothing of its own waits for this one.
  auto Never = ES.intern("never");
  Define(Never, Hold);
  orc::SymbolLookupSet Wanted(Never);
  for (size_t N = 0; N < Others; ++N) {
    Define(Symbols[N], Working ? Custom::Work(Hold) : Waits(Symbols[N], Needed[N], N));
    Wanted.add(Symbols[N]);
    if (!Working) {
      Define(Needed[N], Hold);
      Wanted.add(Needed[N]);
    }
  }
  Time.phase("setup", 1);
  size_t Found = 0, All = Wanted.size();
  auto InMain = orc::makeJITDylibSearchOrder(&Main);
  ES.lookup(orc::LookupKind::Static, InMain, std::move(Wanted), orc::SymbolState::Ready,
            [&](llvm::Expected<orc::SymbolMap> Result) { Found = ok(std::move(Result)).size(); },
            orc::NoDependenciesToRegister);
  check(Found == 0, "nothing is ready yet");
  Time.phase("pending", Others ? Others : 1);
  auto State = Working ? orc::SymbolState::Ready : orc::SymbolState::Resolved;
  std::vector<orc::ResourceTrackerSP> Trackers;
  for (size_t N = 0; N < Small; ++N) {
    Trackers.push_back(Main.createResourceTracker());
    if (Working)
      ok(Main.define(trivial(Own[N], N), Trackers[N]));
    else
      Define(Own[N], Waits(Own[N], Never, N), Trackers[N]);
    auto Result = ok(ES.lookup(InMain, orc::SymbolLookupSet(Own[N]), orc::LookupKind::Static, State));
    check(answers(Result[Own[N]].getAddress(), N), "another address");
  }
  Time.phase("add", Small);
  for (auto &Tracker : Trackers)
    ok(Tracker->remove());
  Time.phase("remove", Small);
  auto Gone = ES.lookup({&Main}, Own[0]);
  check(!Gone, "a removed symbol is still there");
  llvm::consumeError(Gone.takeError());
  // All of the others become ready now.
  for (auto &R : Held) {
    orc::SymbolMap Addresses;
    for (auto &Symbol : R->getSymbols())
      Addresses[Symbol.first] = target(0);
    ok(R->notifyResolved(Addresses));
    ok(R->notifyEmitted({}));
  }
  check(Found == All, "not all of the others became ready");
  Time.phase("rest", 1);
}

// ---- aliases and dependences ----

/// `Length` aliases, each in a unit of its own, each of the one before; the last is looked up.
inline void aliases(Meter &Time, size_t Rounds, size_t Length) {
  for (size_t Round = 0; Round < Rounds; ++Round) {
    auto Jit = makeJit();
    auto &ES = Jit->getExecutionSession();
    auto &Main = Jit->getMainJITDylib();
    auto Symbols = names(ES, "alias_", Length + 1);
    Time.phase("setup", 1);
    ok(Main.define(trivial(Symbols[0], 3)));
    for (size_t N = 1; N <= Length; ++N)
      ok(Main.define(orc::symbolAliases(
          {{Symbols[N], {Symbols[N - 1], llvm::JITSymbolFlags::Exported}}})));
    Time.phase("define", Length);
    check(answers(ok(ES.lookup({&Main}, Symbols[Length])).getAddress(), 3), "another address");
    Time.phase("lookup", Length);
    Symbols.clear();
    Jit.reset();
    Time.phase("teardown", 1);
  }
}

/// `Count` symbols, in one unit or in one each, of which each needs the next, and in a ring
/// the last the first; all are looked up.
inline void graph(Meter &Time, bool OneUnit, bool Ring, size_t Count) {
  auto &Jit = makeLastingJit();
  auto &ES = Jit.getExecutionSession();
  auto &Main = Jit.getMainJITDylib();
  auto Symbols = names(ES, "node_", Count);
  auto Emit = [&](orc::MaterializationResponsibility &R, size_t First, size_t End) {
    orc::SymbolMap Addresses;
    std::vector<orc::SymbolDependenceGroup> Groups;
    for (size_t N = First; N < End; ++N) {
      Addresses[Symbols[N]] = target(N);
      if (N + 1 < Count || Ring)
        Groups.push_back({{Symbols[N]}, {{&Main, {Symbols[(N + 1) % Count]}}}});
    }
    ok(R.notifyResolved(Addresses));
    ok(R.notifyEmitted(Groups));
  };
  size_t Each = OneUnit ? Count : 1;
  for (size_t First = 0; First < Count; First += Each) {
    orc::SymbolFlagsMap Own;
    for (size_t N = First; N < First + Each; ++N)
      Own[Symbols[N]] = llvm::JITSymbolFlags::Exported;
    ok(Main.define(std::make_unique<Custom>(
        Own, [&, First, Each](std::unique_ptr<orc::MaterializationResponsibility> R) {
          Emit(*R, First, First + Each);
        })));
  }
  orc::SymbolLookupSet Wanted;
  for (auto &Name : Symbols)
    Wanted.add(Name);
  Time.phase("setup", 1);
  auto Found = ok(ES.lookup(orc::makeJITDylibSearchOrder(&Main), std::move(Wanted)));
  Time.phase("graph", Count);
  for (size_t N = 0; N < Count; ++N)
    check(answers(Found[Symbols[N]].getAddress(), N), "another address");
  Time.phase("check", 1);
}
