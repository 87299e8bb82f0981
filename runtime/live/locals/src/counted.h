// Loops that end after a number of iterations, and are entered again (counted.cpp).
#ifndef URUK_COUNTED_H
#define URUK_COUNTED_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"

namespace llvm {
class TargetTransformInfo;
}

namespace uruk {

/// Adds the iterations of loops inside of a loop to a variable, in front of each.
void addInner(llvm::Loop &L, llvm::Value *Counter, llvm::ScalarEvolution &Numbers,
              const llvm::TargetTransformInfo &Costs);

/// A loop ends after `Count` iterations, those that are added to the variable included, and is entered again by a loop
/// around it. Returns the blocks of the inner one, and those in which values that it leaves are merged.
llvm::SmallVector<llvm::BasicBlock *, 16> limit(llvm::Loop &L, uint64_t Count, llvm::Value *Counter);

} // namespace uruk

#endif
