// Outlines loops of functions that are entered once, so that `uruk live` can replace their code.
//
// Only entries of functions lead to new code. A loop of `main` is entered once, so it would stay native. Each such
// loop becomes a function of its own, which returns after a number of iterations and is called again:
//
//   before                        after
//   loop { body }                 while (!main.loop1(&variables)) {}
//                                 main.loop1: loop { body; if (done) return true; if (++count == N) return false }
//
// # Functions
// A function counts as entered once if it is
//
//   - `main`, or one that does not return, or has a loop that is never left,
//   - the start of a thread (`pthread_create`, `thrd_create`), or
//   - called at one place of the module, which is in no loop of a function that is entered once.
//
// A guess that is wrong costs a call per entry.
//
// # Loops
// Outermost loops are outlined. If one has few iterations, or may not be outlined, the loops inside are. Iterations of
// inner loops count as well: their number is added in front of the inner loop, where it is known, so that inner loops
// stay as they are.
//
// # Names
// `main.loop1.HASH`. The order of arguments depends on the body. An exchange may not give a running `main`, which passes the
// arguments of the old body, a new one, so that a changed body has another name. The old one goes on.
//
// # Refused
// Where code may not move into another function, the remark `-Rpass-missed=uruk-outline` has the reason.
//
// # Place in the pipeline
// Before all optimizations but SROA and loop rotation, as the bitcode that clang embeds is that before optimization, and
// has to have the same functions. The module is embedded anew.
//
// # Why
// Processor time over that of the same program without the option, 30 programs whose time is in such loops
// (demos/guests/programs/once), natively at -O2, geometric mean of medians of three runs:
//
//   outermost loops, 64 iterations of those that have inner loops                        1.006
//   iterations of inner loops added where these are entered (as it is)                   1.004
//   the same, also for loops inside of inner loops                                       1.010
//   inner loops continue in a copy of their own after a number of iterations             1.037
//   inner loops have a copy, chosen at their entry by the number of iterations           1.038
//
// With a fixed number a loop over passes of a second each would come to new code after a minute. Programs differ by
// 0.85 to 1.07, by the order of blocks and registers of loops that are compiled apart from the code around them.
// Arguments are `noalias` where the caller's are, without which one program took 1.19 of the time.

#include "outline.h"

#include "counted.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/CaptureTracking.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/MemoryBufferRef.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopRotation.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Utils/CodeExtractor.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"

#include <vector>

#define DEBUG_TYPE "uruk-outline"

using namespace llvm;

namespace {

/// Iterations of a call, those of inner loops included: of loops that only compute, and of those that call functions.
constexpr uint64_t Computing = 8192, Calling = 1024;

/// A loop of no more iterations is no place for new code, but the loops inside may be.
constexpr unsigned Few = 16;

/// Bytes of variables whose lifetimes begin in loops that may live always: they share no memory any more.
constexpr uint64_t MostBytes = 8192;

/// Digits of a hash in names.
constexpr size_t HashLength = 12;

/// The variable of clang's embedded bitcode.
constexpr const char *Embedded = "llvm.embedded.module";

bool isCall(const Instruction &I) {
  return isa<CallBase>(I) && !isa<IntrinsicInst>(I);
}

/// Why no code may leave a function; null if it may.
const char *refusal(const Function &F) {
  if (F.hasOptNone())
    return "it is not to be optimized";
  if (F.isVarArg())
    return "it takes any number of arguments";
  if (F.hasFnAttribute(Attribute::Naked) || F.isPresplitCoroutine())
    return "it is naked, or a coroutine";
  for (auto Kind : {Attribute::SanitizeAddress, Attribute::SanitizeHWAddress, Attribute::SanitizeMemory,
                    Attribute::SanitizeThread, Attribute::SanitizeMemTag, Attribute::SafeStack,
                    Attribute::StrictFP})
    if (F.hasFnAttribute(Kind))
      return "it is sanitized, or uses the floating-point environment";
  if (F.callsFunctionThatReturnsTwice())
    return "it calls setjmp, or another function that returns twice";
  for (const BasicBlock &B : F) {
    if (B.hasAddressTaken() || isa<IndirectBrInst>(B.getTerminator()) ||
        isa<CallBrInst>(B.getTerminator()))
      return "it has a computed goto, or an asm goto";
    if (B.getTerminatingMustTailCall())
      return "it has a call that must be a tail call";
  }
  return nullptr;
}

/// Why an instruction may not move into another function.
const char *refusal(const Instruction &I) {
  if (I.isEHPad() || isa<InvokeInst>(I) || isa<ResumeInst>(I))
    return "it handles exceptions";
  if (I.isLifetimeStartOrEnd())
    return "its variables share much memory";
  if (isa<AllocaInst>(I))
    return "it has an array of variable size, or calls alloca";
  if (I.getType()->isTokenTy())
    return "it has tokens";
  auto *Intrinsic = dyn_cast<IntrinsicInst>(&I);
  switch (Intrinsic ? Intrinsic->getIntrinsicID() : Intrinsic::not_intrinsic) {
  case Intrinsic::returnaddress:
  case Intrinsic::addressofreturnaddress:
  case Intrinsic::frameaddress:
  case Intrinsic::sponentry:
  case Intrinsic::stacksave:
  case Intrinsic::stackrestore:
  case Intrinsic::localescape:
  case Intrinsic::localrecover:
  case Intrinsic::eh_typeid_for:
    return "it uses its frame";
  default:
    return nullptr;
  }
}

const char *refusal(const Loop &L) {
  if (!L.isLoopSimplifyForm())
    return "its edges cannot be told apart";
  for (const BasicBlock *B : L.blocks())
    for (const Instruction &I : *B)
      if (const char *Why = refusal(I))
        return Why;
  return nullptr;
}

/// The functions that are entered once.
class Once {
  FunctionAnalysisManager &Analyses;
  SmallPtrSet<Function *, 8> Seen;
  std::vector<Function *> All;

  void add(Function *F) {
    if (F && !F->isDeclaration() && !F->hasAvailableExternallyLinkage() && Seen.insert(F).second)
      All.push_back(F);
  }

  bool isNeverLeft(Function &F) {
    auto HasReturn = [](const BasicBlock &B) { return isa<ReturnInst>(B.getTerminator()); };
    if (F.doesNotReturn() || none_of(F, HasReturn))
      return true;
    for (const Loop *L : Analyses.getResult<LoopAnalysis>(F)) {
      SmallVector<BasicBlock *, 8> Exits;
      L->getExitBlocks(Exits);
      auto IsEnd = [](const BasicBlock *B) { return isa<UnreachableInst>(B->getTerminator()); };
      if (all_of(Exits, IsEnd))
        return true;
    }
    return false;
  }

  void addStart(const CallBase &Call) {
    const Function *Callee = Call.getCalledFunction();
    unsigned At = Callee && Callee->getName() == "pthread_create" ? 2
                  : Callee && Callee->getName() == "thrd_create"  ? 1
                                                                  : ~0u;
    if (At < Call.arg_size())
      add(dyn_cast<Function>(Call.getArgOperand(At)->stripPointerCasts()));
  }

public:
  Once(Module &M, FunctionAnalysisManager &Analyses) : Analyses(Analyses) {
    for (Function &F : M) {
      if (F.isDeclaration())
        continue;
      if (F.getName() == "main" || isNeverLeft(F))
        add(&F);
      for (const Instruction &I : instructions(F))
        if (auto *Call = dyn_cast<CallBase>(&I))
          addStart(*Call);
    }
    for (size_t I = 0; I != All.size(); ++I) {
      const LoopInfo &Loops = Analyses.getResult<LoopAnalysis>(*All[I]);
      for (Instruction &It : instructions(*All[I])) {
        auto *Call = dyn_cast<CallBase>(&It);
        Function *Callee = Call ? Call->getCalledFunction() : nullptr;
        if (Callee && Callee->hasOneUse() && !Loops.getLoopFor(It.getParent()))
          add(Callee);
      }
    }
  }

  const std::vector<Function *> &all() const { return All; }
};

/// Prints the layout of the structs of a type that have names, in the code of which only names are printed.
void printLayouts(Type *Ty, SmallPtrSetImpl<Type *> &Seen, raw_ostream &Out) {
  if (!Ty || !Seen.insert(Ty).second)
    return;
  auto *Struct = dyn_cast<StructType>(Ty);
  if (Struct && Struct->hasName()) {
    Ty->print(Out);
    Out << ';';
  }
  for (Type *Part : Ty->subtypes())
    printLayouts(Part, Seen, Out);
}

/// The layouts on which the code of a function depends.
void printLayouts(const Function &F, raw_ostream &Out) {
  SmallPtrSet<Type *, 16> Seen;
  for (const Instruction &I : instructions(F)) {
    printLayouts(I.getType(), Seen, Out);
    for (const Value *It : I.operands()) {
      printLayouts(It->getType(), Seen, Out);
      if (auto *Address = dyn_cast<GEPOperator>(It))
        printLayouts(Address->getSourceElementType(), Seen, Out);
    }
    if (auto *Address = dyn_cast<GEPOperator>(&I))
      printLayouts(Address->getSourceElementType(), Seen, Out);
    if (auto *Call = dyn_cast<CallBase>(&I))
      for (unsigned At = 0; At != Call->arg_size(); ++At) {
        printLayouts(Call->getParamByValType(At), Seen, Out);
        printLayouts(Call->getParamStructRetType(At), Seen, Out);
      }
  }
}

/// A hash of a function's code, with attributes of arguments, without those of functions and debug information.
std::string hash(const Function &F) {
  std::string Text;
  raw_string_ostream Out(Text);
  Out << F;
  printLayouts(F, Out);
  uint64_t Hash = 0xcbf29ce484222325;
  bool IsLeftOut = false;
  for (size_t At = 0; At != Text.size(); ++At) {
    IsLeftOut = IsLeftOut ? !isSpace(Text[At]) && Text[At] != ',' : Text[At] == '!' || Text[At] == '#';
    if (!IsLeftOut && !isSpace(Text[At]) && Text[At] != ',')
      Hash = (Hash ^ static_cast<unsigned char>(Text[At])) * 0x100000001b3;
  }
  return utohexstr(Hash, true).substr(0, HashLength);
}

/// Outlines loops of one function.
class Outliner {
  Function &F;
  FunctionAnalysisManager &Analyses;
  OptimizationRemarkEmitter Remarks;
  std::vector<Function *> &Made;

  void missed(const char *Why, const DebugLoc &Place, const BasicBlock *B) {
    Remarks.emit([&] {
      return OptimizationRemarkMissed(DEBUG_TYPE, "Native", Place, B)
             << "loop stays native: " << Why;
    });
  }

  void prepare() {
    FunctionPassManager Passes;
    Passes.addPass(SROAPass(SROAOptions::ModifyCFG));
    Passes.addPass(createFunctionToLoopPassAdaptor(LoopRotatePass()));
    Passes.addPass(LoopSimplifyPass());
    Passes.addPass(LCSSAPass());
    Analyses.invalidate(F, Passes.run(F, Analyses));
    keepVariables();
  }

  /// Keeps variables in this function: LLVM moves one that is used in the loop only, with its lifetime. Variables whose
  /// lifetimes begin or end in loops live always, if they are small. The others have a second begin, which LLVM does
  /// not move.
  void keepVariables() {
    const LoopInfo &Loops = Analyses.getResult<LoopAnalysis>(F);
    const DataLayout &Layout = F.getDataLayout();
    std::vector<Instruction *> Inside, Begins;
    uint64_t Bytes = 0;
    for (Instruction &It : instructions(F)) {
      auto *Alloca = dyn_cast<AllocaInst>(&It);
      if (!Alloca)
        continue;
      std::vector<Instruction *> Markers;
      for (User *U : Alloca->users())
        if (auto *I = dyn_cast<Instruction>(U); I && I->isLifetimeStartOrEnd())
          Markers.push_back(I);
      if (any_of(Markers, [&](Instruction *I) { return Loops.getLoopFor(I->getParent()); })) {
        auto Size = Alloca->getAllocationSize(Layout);
        Bytes = SaturatingAdd(Bytes, Size && !Size->isScalable() ? Size->getFixedValue() : MostBytes);
        Inside.insert(Inside.end(), Markers.begin(), Markers.end());
      } else {
        auto IsBegin = [](Instruction *I) {
          return cast<IntrinsicInst>(I)->getIntrinsicID() == Intrinsic::lifetime_start;
        };
        if (auto Begin = find_if(Markers, IsBegin); Begin != Markers.end())
          Begins.push_back(*Begin);
      }
    }
    for (Instruction *I : Begins)
      I->clone()->insertAfter(I->getIterator());
    if (Bytes <= MostBytes)
      for (Instruction *I : Inside)
        I->eraseFromParent();
  }

  Loop *loopOf(BasicBlock *Head) { return Analyses.getResult<LoopAnalysis>(F).getLoopFor(Head); }

  /// Finds variables whose addresses are passed to functions that may be inlined. After that they may be in registers,
  /// which a function that gets their address prevents: 1.57 of the time of a loop that sums by such a variable.
  void findPassed() {
    for (Instruction &I : instructions(F)) {
      auto *Call = dyn_cast<CallBase>(&I);
      Function *Callee = Call ? Call->getCalledFunction() : nullptr;
      if (!Callee || Callee->isDeclaration() || Callee->hasFnAttribute(Attribute::NoInline))
        continue;
      for (Value *It : Call->args())
        if (It->getType()->isPointerTy() && isa<AllocaInst>(getUnderlyingObject(It)))
          Passed.insert(getUnderlyingObject(It));
    }
  }

  bool usesPassed(const Loop &L) {
    for (const BasicBlock *B : L.blocks())
      for (const Instruction &I : *B)
        for (const Value *It : I.operands())
          if (It->getType()->isPointerTy() && Passed.contains(getUnderlyingObject(It)))
            return true;
    return false;
  }

  /// Outlines a loop, or those inside of a loop of few iterations.
  void outlineAll(BasicBlock *Head) {
    Loop *L = loopOf(Head);
    auto Calls = [](const BasicBlock *B) { return any_of(*B, isCall); };
    uint64_t Most = any_of(L->blocks(), Calls) ? Calling : Computing;
    unsigned Known = Analyses.getResult<ScalarEvolutionAnalysis>(F).getSmallConstantMaxTripCount(L);
    const char *Why = refusal(*L);
    if (!Why && usesPassed(*L))
      Why = "it uses a variable whose address a function gets that may be inlined";
    if (Why)
      missed(Why, L->getStartLoc(), Head);
    else if (!Known || Known > (L->isInnermost() ? Most : Few))
      return outline(Head, Most);
    std::vector<BasicBlock *> Inside;
    for (Loop *Inner : *L)
      Inside.push_back(Inner->getHeader());
    for (BasicBlock *It : reverse(Inside))
      outlineAll(It);
  }

  /// The objects that pointers may be based on.
  static SmallPtrSet<const Value *, 8> objects(const SetVector<Value *> &Values) {
    SmallPtrSet<const Value *, 8> All;
    SmallVector<const Value *, 4> Objects;
    for (const Value *It : Values)
      if (It->getType()->isPointerTy())
        getUnderlyingObjects(It, Objects, nullptr, 0);
    All.insert(Objects.begin(), Objects.end());
    return All;
  }

  /// The inputs of the region that are the only pointers to their objects. Others may be based on them as well, also
  /// in an earlier iteration.
  SmallPtrSet<const Value *, 8> alone(const SetVector<Value *> &Inputs) {
    SmallPtrSet<const Value *, 8> Alone;
    for (const Value *It : Inputs) {
      auto *Argument = dyn_cast<llvm::Argument>(It);
      if ((isa<AllocaInst>(It) || (Argument && Argument->hasNoAliasAttr())) &&
          !PointerMayBeCaptured(It, true))
        Alone.insert(It);
    }
    for (const Value *It : Inputs) {
      if (It->getType()->isVectorTy() || It->getType()->isAggregateType())
        return {};
      SmallVector<const Value *, 4> Objects;
      if (It->getType()->isPointerTy() && !Alone.contains(It))
        getUnderlyingObjects(It, Objects, nullptr, 0);
      for (const Value *Object : Objects)
        Alone.erase(Object);
    }
    return Alone;
  }

  /// Attributes of the arguments: those that the caller's arguments and variables have.
  void tellArguments(Function &New, const SetVector<Value *> &Inputs,
                     const SmallPtrSetImpl<const Value *> &Alone,
                     const SmallPtrSetImpl<const Value *> &Left) {
    auto *Call = cast<CallBase>(*New.user_begin());
    const DataLayout &Layout = F.getDataLayout();
    for (unsigned I = 0; I != New.arg_size(); ++I) {
      Value *Given = Call->getArgOperand(I);
      AttrBuilder Told(F.getContext());
      if (auto *Alloca = dyn_cast<AllocaInst>(Given)) {
        Told.addAlignmentAttr(Alloca->getAlign());
        if (auto Size = Alloca->getAllocationSize(Layout); Size && !Size->isScalable())
          Told.addDereferenceableAttr(Size->getFixedValue());
        // A variable by which a value is given back is no input, and is used for that only.
        if (!Inputs.contains(Given))
          Told.addAttribute(Attribute::NoAlias);
      } else if (auto *Argument = dyn_cast<llvm::Argument>(Given)) {
        for (auto Kind : {Attribute::NonNull, Attribute::Dereferenceable, Attribute::Alignment})
          if (Argument->hasAttribute(Kind))
            Told.addAttribute(Argument->getAttribute(Kind));
      }
      if (Alone.contains(Given))
        Told.addAttribute(Attribute::NoAlias);
      if (Alone.contains(Given) && !Left.contains(Given))
        Told.addCapturesAttr(CaptureInfo::none());
      New.addParamAttrs(I, Told);
    }
  }

  /// Brings the function back to the form that loops need.
  void settle() {
    Analyses.invalidate(F, PreservedAnalyses::none());
    FunctionPassManager Passes;
    Passes.addPass(LoopSimplifyPass());
    Passes.addPass(LCSSAPass());
    Analyses.invalidate(F, Passes.run(F, Analyses));
  }

  void outline(BasicBlock *Head, uint64_t Most) {
    Loop *L = loopOf(Head);
    SmallVector<BasicBlock *, 16> Blocks(L->block_begin(), L->block_end());
    if (!CodeExtractor(Blocks, &Analyses.getResult<DominatorTreeAnalysis>(F)).isEligible())
      return missed("LLVM does not extract it", L->getStartLoc(), Head);
    auto &Start = F.getEntryBlock();
    auto *Counter = new AllocaInst(Type::getInt64Ty(F.getContext()), 0, "", Start.begin());
    uruk::addInner(*L, Counter, Analyses.getResult<ScalarEvolutionAnalysis>(F),
                   Analyses.getResult<TargetIRAnalysis>(F));
    Blocks = uruk::limit(*L, Most, Counter);
    Analyses.invalidate(F, PreservedAnalyses::none());
    PromoteMemToReg(Counter, Analyses.getResult<DominatorTreeAnalysis>(F));
    CodeExtractorAnalysisCache Cache(F);
    CodeExtractor Extractor(Blocks, &Analyses.getResult<DominatorTreeAnalysis>(F), false, nullptr,
                            nullptr, &Analyses.getResult<AssumptionAnalysis>(F), false, false,
                            nullptr, "loop");
    SetVector<Value *> Inputs, Outputs;
    Extractor.findInputsOutputs(Inputs, Outputs, {});
    SmallPtrSet<const Value *, 8> Alone = alone(Inputs);
    SmallPtrSet<const Value *, 8> Left = objects(Outputs);
    Function *New = Extractor.extractCodeRegion(Cache);
    if (!New)
      return missed("LLVM did not extract it", DebugLoc(), &F.getEntryBlock());
    New->removeFnAttr(Attribute::AlwaysInline);
    New->removeFnAttr(Attribute::InlineHint);
    New->addFnAttr(Attribute::NoInline);
    // `-finstrument-functions` counts calls of the source.
    for (StringRef Kind : {"instrument-function-entry", "instrument-function-exit",
                           "instrument-function-entry-inlined", "instrument-function-exit-inlined"})
      New->removeFnAttr(Kind);
    tellArguments(*New, Inputs, Alone, Left);
    New->setName(F.getName() + ".loop" + Twine(++Number));
    New->setName(New->getName() + "." + hash(*New));
    Made.push_back(New);
    settle();
  }

  SmallPtrSet<const Value *, 8> Passed;
  unsigned Number = 0;

public:
  Outliner(Function &F, FunctionAnalysisManager &Analyses, std::vector<Function *> &Made)
      : F(F), Analyses(Analyses), Remarks(&F), Made(Made) {}

  void run() {
    if (Analyses.getResult<LoopAnalysis>(F).empty())
      return;
    if (const char *Why = refusal(F))
      return missed(Why, DebugLoc(), &F.getEntryBlock());
    prepare();
    findPassed();
    std::vector<BasicBlock *> Heads;
    for (Loop *L : Analyses.getResult<LoopAnalysis>(F))
      Heads.push_back(L->getHeader());
    // From the first one in the source.
    for (BasicBlock *Head : reverse(Heads))
      outlineAll(Head);
  }
};

/// Embeds the module in place of the one that clang embedded.
void embed(Module &M, GlobalVariable *Old) {
  removeFromUsedLists(M, [&](Constant *It) { return It->stripPointerCasts() == Old; });
  Old->eraseFromParent();
  embedBitcodeInModule(M, MemoryBufferRef(), true, false, {});
}

} // namespace

void uruk::outlineLoops(Module &M, FunctionAnalysisManager &Analyses) {
  GlobalVariable *Old = M.getGlobalVariable(Embedded, true);
  if (!Old)
    return;
  std::vector<Function *> Made;
  std::vector<Function *> Functions = Once(M, Analyses).all();
  for (Function *F : Functions)
    Outliner(*F, Analyses, Made).run();
  if (Made.empty())
    return;
  embed(M, Old);
  // Calls keep the type of these functions.
  appendToCompilerUsed(M, std::vector<GlobalValue *>(Made.begin(), Made.end()));
}
