// Outlines loops of functions that are entered once (outline.cpp).
#ifndef URUK_OUTLINE_H
#define URUK_OUTLINE_H

#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"

namespace uruk {

/// Outlines loops of a module that was not optimized yet, and embeds its bitcode anew.
void outlineLoops(llvm::Module &M, llvm::FunctionAnalysisManager &Analyses);

} // namespace uruk

#endif
