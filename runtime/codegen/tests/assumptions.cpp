// Prints what the library assumes of LLVM's classes, as LLVM's headers have it.
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

using namespace llvm;

// The place of a virtual function in the table, by the Itanium ABI's pointer to a member.
template <typename Member> long slot(Member member) {
  uintptr_t words[2];
  static_assert(sizeof member == sizeof words);
  std::memcpy(words, &member, sizeof words);
  return (words[0] & 1) ? long(words[0] / sizeof(void *)) : -1;
}

struct Kind : raw_svector_ostream {
  using raw_svector_ostream::raw_svector_ostream;
  static constexpr int vector = int(OStreamKind::OK_SVecStream);
};

int main() {
  std::printf("size of raw_svector_ostream %zu\n", sizeof(raw_svector_ostream));
  std::printf("size of SmallVector<char, 0> %zu\n", sizeof(SmallVector<char, 0>));
  std::printf("size of OptPassGate %zu\n", sizeof(OptPassGate));
  std::printf("size of Error %zu\n", sizeof(Error));
  std::printf("ObjectFile %d\n", int(CodeGenFileType::ObjectFile));
  std::printf("OK_SVecStream %d\n", Kind::vector);
  using Should = bool (OptPassGate::*)(StringRef, StringRef) const;
  std::printf("slot of shouldRunPass %ld\n",
              slot(static_cast<Should>(&OptPassGate::shouldRunPass)));
  std::printf("slot of isEnabled %ld\n", slot(&OptPassGate::isEnabled));
  std::printf("virtual destructor %d\n", std::has_virtual_destructor_v<OptPassGate>);
}
