// What concerns code: objects and IR are added, linked or compiled, and called.

#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "llvm/AsmParser/Parser.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ThreadSafeModule.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include "symbols.h"

inline std::string read(const char *Path) {
  auto Buffer = llvm::MemoryBuffer::getFile(Path);
  check(bool(Buffer), "the input cannot be read");
  return (*Buffer)->getBuffer().str();
}

inline std::unique_ptr<llvm::MemoryBuffer> copied(llvm::StringRef Bytes, const std::string &Name) {
  return llvm::MemoryBuffer::getMemBufferCopy(Bytes, Name);
}

inline int call(orc::ExecutorAddr At) { return At.toPtr<Function>()(); }

/// "f0000000" with a number.
inline std::string numbered(size_t N) {
  char Name[16];
  std::snprintf(Name, sizeof Name, "f%07zu", N);
  return Name;
}

/// Objects that differ in a name and a number: the template's name f0000000 and its datum
/// 0x11223344 are replaced.
class Template {
public:
  explicit Template(std::string Bytes) : Bytes(std::move(Bytes)) {
    Name = this->Bytes.find("f0000000");
    Datum = this->Bytes.find("\x44\x33\x22\x11");
    check(Name != std::string::npos && Datum != std::string::npos, "this is no template");
  }
  const std::string &number(size_t N) {
    Bytes.replace(Name, 8, numbered(N));
    for (int Byte = 0; Byte < 4; ++Byte)
      Bytes[Datum + Byte] = char(N >> (8 * Byte));
    return Bytes;
  }

private:
  std::string Bytes;
  size_t Name, Datum;
};

inline orc::ThreadSafeModule moduleOf(llvm::StringRef Bitcode, const std::string &Name) {
  auto Context = std::make_unique<llvm::LLVMContext>();
  auto Module = ok(llvm::parseBitcodeFile(llvm::MemoryBufferRef(Bitcode, Name), *Context));
  return orc::ThreadSafeModule(std::move(Module), std::move(Context));
}

inline std::string bitcodeOf(const std::string &Text) {
  llvm::LLVMContext Context;
  llvm::SMDiagnostic Error;
  auto Module = llvm::parseAssemblyString(Text, Error, Context);
  check(bool(Module), "the IR does not parse");
  std::string Bytes;
  llvm::raw_string_ostream Out(Bytes);
  llvm::WriteBitcodeToFile(*Module, Out);
  return Bytes;
}

/// A function that returns a global of its own.
inline std::string smallModule(size_t N) {
  auto Number = std::to_string(N);
  return "@g" + Number + " = global i32 " + Number + "\ndefine i32 @" + numbered(N) +
         "() {\n  %v = load i32, ptr @g" + Number + "\n  ret i32 %v\n}\n";
}

// ---- live ones, and one that comes and goes beside them ----

/// Adds, calls and keeps `Live` objects or modules, then `Cycles` times adds, calls and
/// removes one. Stops adding after `Seconds` of processor time.
inline void modules(Meter &Time, const char *Kind, const char *Path, size_t Live, size_t Cycles,
                    double Seconds) {
  bool Objects = !std::strcmp(Kind, "object");
  auto &Jit = makeLastingJit();
  auto &Main = Jit.getMainJITDylib();
  std::unique_ptr<Template> Object;
  if (Objects)
    Object = std::make_unique<Template>(read(Path));
  auto Add = [&](llvm::StringRef Bytes, size_t N, const orc::ResourceTrackerSP &Tracker) {
    auto Name = numbered(N);
    if (Objects)
      ok(Jit.addObjectFile(Tracker, copied(Bytes, Name)));
    else
      ok(Jit.addIRModule(Tracker, moduleOf(Bytes, Name)));
  };
  std::vector<std::string> Inputs;
  for (size_t N = 0; N <= Live && !Objects; ++N)
    Inputs.push_back(bitcodeOf(smallModule(N)));
  auto Input = [&](size_t N) -> llvm::StringRef {
    return Objects ? Object->number(N) : Inputs[N];
  };
  // What is set up once is not one module's.
  auto Default = Main.getDefaultResourceTracker();
  Add(Input(Live), Live, Default);
  check(call(ok(Jit.lookup(numbered(Live)))) == int(Live), "another value");
  ok(Default->remove());
  Time.phase("setup", 1);
  double Before = residentBytes(), Start = clockNs(CLOCK_PROCESS_CPUTIME_ID);
  size_t Done = 0;
  for (; Done < Live; ++Done) {
    if (clockNs(CLOCK_PROCESS_CPUTIME_ID) - Start > Seconds * 1e9) {
      reached("live", Done, "by its limit of time");
      break;
    }
    Add(Input(Done), Done, Main.getDefaultResourceTracker());
    auto At = Jit.lookup(numbered(Done));
    // Every object has mappings of its own, of which the kernel gives a process some 65,000.
    if (!At) {
      reached("live", Done, llvm::toString(At.takeError()));
      Cycles = 0;
      break;
    }
    check(call(*At) == int(Done), "another value");
  }
  Time.phase("live", Done ? Done : 1);
  if (Done)
    value("live_bytes", (residentBytes() - Before) / Done);
  Before = residentBytes();
  size_t Cycle = 0;
  for (; Cycle < Cycles; ++Cycle) {
    auto Tracker = Main.createResourceTracker();
    Add(Input(Live), Live, Tracker);
    check(call(ok(Jit.lookup(numbered(Live)))) == int(Live), "another value");
    ok(Tracker->remove());
  }
  if (Cycles) {
    Time.phase("cycle", Cycle);
    value("cycle_bytes", (residentBytes() - Before) / Cycle);
  }
}

// ---- an archive of which little is used ----

/// Each round opens the archive in a session of its own and calls `Used` of its members.
inline void archive(Meter &Time, const char *Path, size_t Rounds, size_t Members, size_t Used) {
  for (size_t Round = 0; Round < Rounds; ++Round) {
    auto Jit = makeJit();
    auto &Main = Jit->getMainJITDylib();
    Time.phase("setup", 1);
    Main.addGenerator(ok(orc::StaticLibraryDefinitionGenerator::Load(
        Jit->getObjLinkingLayer(), Path)));
    Time.phase("open", 1);
    for (size_t N = 0; N < Used; ++N) {
      size_t Member = N * (Members / Used) + 1;
      check(call(ok(Jit->lookup(numbered(Member)))) == int(Member), "another value");
    }
    Time.phase("use", Used);
    Jit.reset();
    Time.phase("teardown", 1);
  }
}

// ---- chains and rings of functions ----

/// An object of functions that call each other; the first is called.
inline void objectGraph(Meter &Time, const char *Path, size_t Count) {
  auto &Jit = makeLastingJit();
  auto Bytes = read(Path);
  Time.phase("setup", 1);
  ok(Jit.addObjectFile(copied(Bytes, "chain.o")));
  auto At = ok(Jit.lookup("f0"));
  Time.phase("graph", Count);
  check(At.toPtr<int (*)(int)>()(int(Count) - 1) == int(Count) - 1, "another value");
  Time.phase("check", 1);
}

/// A module of functions each of which calls the next, or as many modules of one function;
/// compiled lazily, so that calling the first compiles all.
inline void lazy(Meter &Time, const char *Path, bool Together, size_t Count) {
  auto &Jit = *ok(orc::LLLazyJITBuilder().create()).release();
  std::vector<std::string> Inputs;
  if (Together)
    Inputs.push_back(read(Path));
  for (size_t N = Count; N-- > 0 && !Together;)
    Inputs.push_back(bitcodeOf(
        N + 1 < Count
            ? "declare i32 @f" + std::to_string(N + 1) + "()\ndefine i32 @f" + std::to_string(N) +
                  "() {\n  %n = call i32 @f" + std::to_string(N + 1) +
                  "()\n  %m = add i32 %n, 1\n  ret i32 %m\n}\n"
            : "define i32 @f" + std::to_string(N) + "() {\n  ret i32 1\n}\n"));
  Time.phase("setup", 1);
  for (auto &Input : Inputs)
    ok(Jit.addLazyIRModule(moduleOf(Input, "chain")));
  auto At = ok(Jit.lookup("f0"));
  Time.phase("add", Count);
  check(call(At) == int(Count), "another value");
  Time.phase("call", Count);
  check(call(At) == int(Count), "another value");
  Time.phase("again", Count);
}
