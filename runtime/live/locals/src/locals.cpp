// Records the local functions that are called by their types when the optimizer is done.
//
// Optimizers may change how a local function is called, if they see all its calls: they promote arguments, remove
// arguments and results, replace results by constants, or make copies for known arguments. LLVM gives a function of
// another type a new object. So a function is *kept* if
//
//   - it is the object that it was before the optimizer, under the same name,
//   - its convention is C or fast, which for x86-64 are the same without guaranteed tail calls,
//   - attributes that change registers or the stack (zeroext, byval, sret, ..) are as they were,
//   - all direct calls are of its type and have these attributes, and no argument is left open (undef, poison),
//   - it returns no open value, as it does if callers know the result, and
//   - no function of a library is told to call it (`!callback`), whose arguments would have to be looked up.
//
// Indirect calls keep the type: LLVM changes only functions of which it sees all uses.
//
// A native body may use the values that its calls pass (IPSCCP). LLVM derives them once, before it inlines calls, so
// that they hold for calls that are in no native code any more, too. That is different if calls are inlined by a
// profile of samples, which happens before, and where the passes for OpenMP derive facts again, later: such modules
// have no record.
//
// Elements of a value built by `insertvalue` or `insertelement` may be open: LLVM leaves out whole arguments and
// results only, so the source left these elements open. Values that the source left open are not told apart from
// those that LLVM did: the function is not recorded.
//
// Functions of the record may have been inlined, or copied, as well. Their native bodies may use what LLVM knows about
// their arguments, and their native callers what it knows about them.
//
// # The record
// A section that is not loaded, `.uruk.locals`; numbers are little-endian, and nothing is aligned.
//
//   8 bytes   URUKLOC1
//   u64       length of the embedded bitcode (`llvm.embedded.module`)
//   u64       FNV-1a of the embedded bitcode
//   u64       length of the names
//   u64       FNV-1a of the 24 bytes before this, and of the names
//   names     each ends with a zero

#include "outline.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/ValueHandle.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Plugins/PassPlugin.h"
#include "llvm/Support/Endian.h"
#include "llvm/TargetParser/Triple.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

using namespace llvm;

static_assert(LLVM_PLUGIN_API_VERSION == 2, "lib.rs has another version");

namespace {

/// `uruk cc --outline-loops` sets this variable: a plugin has no options of its own.
constexpr const char *OutlineLoops = "URUK_OUTLINE_LOOPS";

/// A local function before the optimizer.
struct Local {
  /// Null once the function is deleted; it never leads to what replaces the function.
  WeakVH Object;
  std::string Name;
  AttributeList Attributes;
};

/// The local functions of a module.
struct State {
  std::vector<Local> Locals;
};

/// Attributes of arguments and results that change where they are passed.
constexpr Attribute::AttrKind Placing[] = {
    Attribute::ZExt,      Attribute::SExt,       Attribute::InReg,
    Attribute::ByVal,     Attribute::ByRef,      Attribute::StructRet,
    Attribute::InAlloca,  Attribute::Preallocated, Attribute::Nest,
    Attribute::SwiftSelf, Attribute::SwiftAsync, Attribute::SwiftError,
    Attribute::StackAlignment,
};

bool arePlaced(AttributeSet A, AttributeSet B) {
  for (Attribute::AttrKind Kind : Placing)
    if (A.getAttribute(Kind) != B.getAttribute(Kind))
      return false;
  // The place on the stack depends on it.
  return !A.hasAttribute(Attribute::ByVal) || A.getAlignment() == B.getAlignment();
}

/// Whether results and the first `Count` arguments are passed in the same places.
bool arePlaced(AttributeList A, AttributeList B, unsigned Count) {
  if (!arePlaced(A.getRetAttrs(), B.getRetAttrs()))
    return false;
  for (unsigned I = 0; I != Count; ++I)
    if (!arePlaced(A.getParamAttrs(I), B.getParamAttrs(I)))
      return false;
  return true;
}

/// Whether any bits may stand for a value.
bool isOpen(const Value *V, SmallPtrSetImpl<const Value *> &Seen) {
  if (!Seen.insert(V).second)
    return false;
  if (isa<UndefValue>(V))
    return true;
  auto AnyOperand = [&](const User *U) {
    return any_of(U->operands(), [&](const Use &It) { return isOpen(It, Seen); });
  };
  if (isa<ConstantAggregate>(V) || isa<PHINode>(V) || isa<FreezeInst>(V))
    return AnyOperand(cast<User>(V));
  if (auto *Select = dyn_cast<SelectInst>(V))
    return isOpen(Select->getTrueValue(), Seen) || isOpen(Select->getFalseValue(), Seen);
  return false;
}

bool isOpen(const Value *V) {
  SmallPtrSet<const Value *, 8> Seen;
  return isOpen(V, Seen);
}

bool isPlain(CallingConv::ID Convention) {
  return Convention == CallingConv::C || Convention == CallingConv::Fast;
}

/// Whether a call is by the type of the function, and gives all arguments.
bool isWhole(const CallBase &Call, const Function &Callee) {
  const AttributeList &Attributes = Call.getAttributes();
  unsigned Count = Callee.arg_size();
  return Call.getFunctionType() == Callee.getFunctionType() &&
         Call.getCallingConv() == Callee.getCallingConv() &&
         arePlaced(Attributes, Callee.getAttributes(), Count) &&
         none_of(Call.args(), [](const Use &It) { return isOpen(It); });
}

/// The functions that no instruction of the module speaks against, by number.
class Search {
  DenseMap<const Function *, size_t> Numbers;

  void reject(const Value *V) {
    if (auto *F = dyn_cast<Function>(V->stripPointerCastsAndAliases()))
      Numbers.erase(F);
  }

  void check(const CallBase &Call) {
    auto *Callee = dyn_cast<Function>(Call.getCalledOperand()->stripPointerCastsAndAliases());
    if (!Callee)
      return;
    if (Numbers.count(Callee) && !isWhole(Call, *Callee))
      Numbers.erase(Callee);
    if (Callee->hasMetadata(LLVMContext::MD_callback))
      for (const Use &It : Call.args())
        reject(It);
  }

public:
  Search(Module &M, const State &S) {
    for (size_t I = 0; I != S.Locals.size(); ++I) {
      const Local &It = S.Locals[I];
      auto *F = dyn_cast_or_null<Function>(static_cast<Value *>(It.Object));
      if (F && !F->isDeclaration() && F->hasLocalLinkage() && F->getName() == It.Name &&
          isPlain(F->getCallingConv()) &&
          arePlaced(It.Attributes, F->getAttributes(), F->arg_size()))
        Numbers[F] = I;
    }
    for (Function &F : M)
      for (Instruction &I : instructions(F)) {
        auto *Return = dyn_cast<ReturnInst>(&I);
        if (Return && Return->getReturnValue() && isOpen(Return->getReturnValue()))
          Numbers.erase(&F);
        else if (auto *Call = dyn_cast<CallBase>(&I))
          check(*Call);
      }
  }

  /// The names, each with a zero at its end, in the order of the module.
  std::string names(const State &S) const {
    std::vector<bool> Found(S.Locals.size());
    for (auto &It : Numbers)
      Found[It.second] = true;
    std::string Names;
    for (size_t I = 0; I != Found.size(); ++I)
      if (Found[I])
        Names.append(S.Locals[I].Name).push_back(0);
    return Names;
  }
};

uint64_t fnv(StringRef Bytes, uint64_t Hash = 0xcbf29ce484222325) {
  for (unsigned char Byte : Bytes)
    Hash = (Hash ^ Byte) * 0x100000001b3;
  return Hash;
}

std::string number(uint64_t Number) {
  std::string Bytes(sizeof Number, 0);
  support::endian::write64le(Bytes.data(), Number);
  return Bytes;
}

/// Directives of an assembler for bytes.
std::string ascii(StringRef Bytes) {
  std::string Text;
  for (size_t At = 0; At < Bytes.size(); At += 64) {
    Text += "\t.ascii \"";
    for (unsigned char Byte : Bytes.substr(At, 64))
      if (isAlnum(Byte) || Byte == '_' || Byte == '.') {
        Text += Byte;
      } else {
        Text += '\\';
        for (int Shift : {6, 3, 0})
          Text += char('0' + (Byte >> Shift & 7));
      }
    Text += "\"\n";
  }
  return Text;
}

/// Whether native bodies may use arguments of some of the calls only.
bool isOfSomeCalls(const Module &M) {
  return M.getModuleFlag("openmp") || any_of(M, [](const Function &F) {
           return F.hasFnAttribute("use-sample-profile");
         });
}

struct Start : PassInfoMixin<Start> {
  std::shared_ptr<State> S;
  explicit Start(std::shared_ptr<State> S) : S(std::move(S)) {}

  PreservedAnalyses run(Module &M, ModuleAnalysisManager &Analyses) {
    S->Locals.clear();
    if (std::getenv(OutlineLoops))
      uruk::outlineLoops(M, Analyses.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager());
    if (isOfSomeCalls(M))
      return PreservedAnalyses::all();
    for (Function &F : M)
      if (!F.isDeclaration() && F.hasLocalLinkage() && isPlain(F.getCallingConv()))
        S->Locals.push_back({WeakVH(&F), F.getName().str(), F.getAttributes()});
    return PreservedAnalyses::all();
  }

  static bool isRequired() { return true; }
};

struct Last : PassInfoMixin<Last> {
  std::shared_ptr<State> S;
  explicit Last(std::shared_ptr<State> S) : S(std::move(S)) {}

  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    const Triple &Target = M.getTargetTriple();
    auto *Embedded = M.getGlobalVariable("llvm.embedded.module", true);
    auto *Bitcode = Embedded && Embedded->hasInitializer()
                        ? dyn_cast<ConstantDataSequential>(Embedded->getInitializer())
                        : nullptr;
    if (!Bitcode || Target.getArch() != Triple::x86_64 || !Target.isOSBinFormatELF())
      return PreservedAnalyses::all();
    std::string Names = Search(M, *S).names(*S);
    S->Locals.clear();
    if (Names.empty())
      return PreservedAnalyses::all();
    StringRef Bytes = Bitcode->getRawDataValues();
    std::string Head = number(Bytes.size()) + number(fnv(Bytes)) + number(Names.size());
    std::string Record = "URUKLOC1" + Head + number(fnv(Names, fnv(Head))) + Names;
    M.appendModuleInlineAsm("\t.pushsection .uruk.locals,\"\",@progbits\n" + ascii(Record) +
                            "\t.popsection\n");
    // Functions are as they were.
    return PreservedAnalyses::all();
  }

  static bool isRequired() { return true; }
};

} // namespace

/// Adds the passes to a builder of LLVM's.
extern "C" void uruk_locals_register(PassBuilder &Builder) {
  auto S = std::make_shared<State>();
  Builder.registerPipelineStartEPCallback(
      [S](ModulePassManager &Passes, OptimizationLevel) { Passes.addPass(Start(S)); });
  Builder.registerOptimizerLastEPCallback(
      [S](ModulePassManager &Passes, OptimizationLevel, ThinOrFullLTOPhase) {
        Passes.addPass(Last(S));
      });
}
