// Loops that end after a number of iterations, and are entered again.

#include "counted.h"

#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

using namespace llvm;

namespace {

/// Iterations that an inner loop is taken to have if their number is not known in front of it.
constexpr uint64_t Unknown = 8;

/// Binary logarithm of the iterations that loops inside of an inner loop are taken to have. To count them where they
/// are entered changes the code around the innermost loops: 1.18 of the time of shortest-paths.
constexpr unsigned Deeper = 6;

/// A loop whose iterations are counted.
struct Counted {
  /// The blocks of the loop, and those to which only it leads.
  SmallVector<BasicBlock *, 16> Blocks;
  /// Where the loop leads after so many iterations. It has no terminator.
  BasicBlock *Pausing;
  /// The next values of the variables of the loop's head, in their order.
  SmallVector<PHINode *, 8> Next;
};

/// A loop ends after `Count` iterations of it and of its inner loops, which are counted in a variable.
Counted count(Loop &L, uint64_t Count, Value *Counter) {
  BasicBlock *Head = L.getHeader(), *Latch = L.getLoopLatch();
  Function &F = *Head->getParent();
  Counted Made{{L.block_begin(), L.block_end()}, BasicBlock::Create(F.getContext(), "loop.pausing", &F), {}};
  MDNode *Name = L.getLoopID();
  auto *Back = dyn_cast<BranchInst>(Latch->getTerminator());
  bool Leaves = Back && Back->isConditional() && L.isLoopExiting(Latch);
  IRBuilder<> B(Made.Pausing);
  B.SetCurrentDebugLocation(Latch->getTerminator()->getDebugLoc());
  BasicBlock *Tail = Leaves ? Latch : SplitEdge(Latch, Head), *Out = Made.Pausing, *From = Tail;
  if (!Leaves)
    Made.Blocks.push_back(Tail);
  Instruction *Old = Tail->getTerminator();
  B.SetInsertPoint(Old);
  Value *Done = B.CreateAdd(B.CreateLoad(B.getInt64Ty(), Counter), B.getInt64(1));
  B.CreateStore(Done, Counter);
  // The number of iterations is known to LLVM if it is that of one loop.
  Value *Last = L.isInnermost() ? B.CreateICmpEQ(Done, B.getInt64(Count)) : B.CreateICmpUGE(Done, B.getInt64(Count));
  if (Leaves) {
    // One condition, so that LLVM sees one exit.
    bool IsFirst = Back->getSuccessor(0) == Head;
    BasicBlock *Exit = Back->getSuccessor(IsFirst);
    Value *Ends = IsFirst ? B.CreateNot(Back->getCondition()) : Back->getCondition();
    Last = B.CreateOr(Ends, Last);
    From = Out = BasicBlock::Create(F.getContext(), "loop.left", &F, Made.Pausing);
    Made.Blocks.push_back(Out);
    Exit->replacePhiUsesWith(Tail, Out);
    IRBuilder<>(Out).CreateCondBr(Ends, Exit, Made.Pausing)->setDebugLoc(Old->getDebugLoc());
  }
  Latch->getTerminator()->setMetadata(LLVMContext::MD_loop, nullptr);
  B.CreateCondBr(Last, Out, Head)->setMetadata(LLVMContext::MD_loop, Name);
  Old->eraseFromParent();
  B.SetInsertPoint(Made.Pausing);
  for (PHINode &Phi : Head->phis()) {
    Made.Next.push_back(B.CreatePHI(Phi.getType(), 1));
    Made.Next.back()->addIncoming(Phi.getIncomingValueForBlock(Tail), From);
  }
  return Made;
}

} // namespace

void uruk::addInner(Loop &L, Value *Counter, ScalarEvolution &Numbers, const TargetTransformInfo &Costs) {
  for (Loop *Inner : L) {
    Instruction *At = Inner->getLoopPreheader()->getTerminator();
    const SCEV *Times = Numbers.getBackedgeTakenCount(Inner);
    SCEVExpander Expander(Numbers, "uruk-outline");
    IRBuilder<> B(At);
    Value *More = B.getInt64(Unknown);
    if (!isa<SCEVCouldNotCompute>(Times) && Times->getType()->isIntegerTy() &&
        Expander.isSafeToExpandAt(Times, At) &&
        !Expander.isHighCostExpansion(Times, Inner, SCEVCheapExpansionBudget, &Costs, At)) {
      Times = Numbers.getTruncateOrZeroExtend(Times, B.getInt64Ty());
      More = Expander.expandCodeFor(Times, B.getInt64Ty(), At->getIterator());
    }
    if (!Inner->isInnermost())
      More = B.CreateShl(More, Deeper);
    B.CreateStore(B.CreateAdd(B.CreateLoad(B.getInt64Ty(), Counter), More), Counter);
  }
}

SmallVector<BasicBlock *, 16> uruk::limit(Loop &L, uint64_t Count, Value *Counter) {
  BasicBlock *Head = L.getHeader(), *Before = L.getLoopPreheader();
  Function &F = *Head->getParent();
  auto Phis = make_pointer_range(Head->phis());
  SmallVector<PHINode *, 8> Variables(Phis.begin(), Phis.end());
  SmallVector<BasicBlock *, 4> Exits;
  L.getUniqueExitBlocks(Exits);
  DebugLoc Place = L.getLoopLatch()->getTerminator()->getDebugLoc();
  Counted Made = count(L, Count, Counter);
  auto *Again = BasicBlock::Create(F.getContext(), "loop.again", &F, Head);
  auto *Pause = BasicBlock::Create(F.getContext(), "loop.pause", &F);
  Before->getTerminator()->replaceSuccessorWith(Head, Again);
  IRBuilder<> B(Again);
  B.SetCurrentDebugLocation(Place);
  for (auto [Phi, Next] : zip_equal(Variables, Made.Next)) {
    PHINode *Kept = B.CreatePHI(Phi->getType(), 2);
    Kept->addIncoming(Phi->getIncomingValueForBlock(Before), Before);
    Kept->addIncoming(Next, Pause);
    Phi->setIncomingValueForBlock(Before, Kept);
  }
  Head->replacePhiUsesWith(Before, Again);
  B.CreateStore(B.getInt64(0), Counter);
  B.CreateBr(Head);
  B.SetInsertPoint(Made.Pausing);
  B.CreateBr(Pause);
  B.SetInsertPoint(Pause);
  B.CreateBr(Again);
  Made.Blocks.push_back(Made.Pausing);
  // Variables are written where the loop is left, not in it.
  for (BasicBlock *Exit : Exits) {
    SplitBlock(Exit, Exit->getFirstNonPHIIt());
    Made.Blocks.push_back(Exit);
  }
  return Made.Blocks;
}
