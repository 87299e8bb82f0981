//! Recursion by several levels at once: a small function that calls itself gets copies of its own
//! body in the place of these calls.
//!
//! ```text
//! NAME: ... call copy 1 ...     copy 1: ... call copy 2 ...     copy 2: ... call NAME ...
//! ```
//!
//! The copies are internal and `alwaysinline`: the next passes put them into `NAME` and drop them. So
//! the object has one function as before, with a call for several levels of the recursion. LLVM inlines
//! no function into itself. GCC does (`-finline-functions`, "recursive inlining"), and with it a naive
//! `fib` takes half the time.
//!
//! # Which functions
//! Those that LLVM can copy (`values`), without `noinline`, whose local variables in memory are small:
//! the variables of all levels are in one frame. A call counts by the times that the function makes it
//! per entry, by the weights of branches; those in unlikely blocks stay calls. The number of levels is
//! the largest that [`MOST`] allows, for the number of calls and the size after simplification.

use inkwell::llvm_sys::core::{
    LLVMAddFunction, LLVMAddIncoming, LLVMAppendBasicBlockInContext, LLVMBuildPhi,
    LLVMCanValueUseFastMathFlags, LLVMConstIntGetZExtValue, LLVMCountIncoming, LLVMCountParams,
    LLVMGetAllocatedType, LLVMGetCalledFunctionType, LLVMGetFastMathFlags, LLVMGetFunctionCallConv,
    LLVMGetIncomingBlock, LLVMGetIncomingValue, LLVMGetNumOperandBundles, LLVMGetParam,
    LLVMGetPersonalityFn, LLVMGlobalGetValueType, LLVMHasPersonalityFn, LLVMInsertIntoBuilder,
    LLVMInstructionClone, LLVMIsAConstantInt, LLVMPositionBuilderAtEnd, LLVMSetFastMathFlags,
    LLVMSetFunctionCallConv, LLVMSetLinkage, LLVMSetOperand, LLVMSetPersonalityFn, LLVMTypeOf,
    LLVMValueAsBasicBlock,
};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};
use inkwell::llvm_sys::{LLVMLinkage, LLVMOpcode};
use rustc_hash::FxHashMap;

use crate::attributes::{self, AttributeKinds};
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::flow::Flow;
use crate::handles::{BlockRef, FunctionRef, InstructionRef, ValueRef};
use crate::hints::Weights;
use crate::instrument;
use crate::properties::copy_attributes;
use crate::values::{self, OWN};
use crate::verifying::is_valid;

/// Most instructions of a function with its copies.
const MOST: usize = 200;

/// Most levels that are put into the first.
const LEVELS: u32 = 3;

/// Most bytes of local variables of a function with its copies.
const BYTES: u64 = 256;

/// A call that is made less often per entry stays a call.
const SELDOM: f64 = 0.1;

/// A function whose calls of itself are fewer per entry, all together, is left as it is.
const FEW: f64 = 0.3;

/// Passes of a loop, as a guess.
const PASSES: f64 = 4.0;

/// The name of the copies.
const COPY: &std::ffi::CStr = c"uruk.again";

/// Puts several levels of recursion into one for all functions that are emitted, where it pays; true
/// if there was one. Passes that inline `alwaysinline` functions must follow.
pub(crate) fn unroll(context: &LlvmContext, module: &OwnedModule) -> bool {
    let kinds = AttributeKinds::new();
    let weights = Weights::of(context);
    let functions: Vec<FunctionRef<'_>> = module.functions().collect();
    let mut any = false;
    for function in functions {
        if let Some(found) = Recursion::of(module, &kinds, &weights, function) {
            found.unroll(context, module, &kinds);
            debug_assert!(is_valid(function), "a recursion that is no valid IR");
            any = true;
        }
    }
    any
}

/// A function that calls itself.
struct Recursion<'m> {
    function: FunctionRef<'m>,
    /// The calls that are replaced.
    calls: Vec<InstructionRef<'m>>,
    levels: u32,
}

impl<'m> Recursion<'m> {
    fn of(
        module: &OwnedModule,
        kinds: &AttributeKinds,
        weights: &Weights,
        function: FunctionRef<'m>,
    ) -> Option<Recursion<'m>> {
        let calls_itself = |user: ValueRef<'_>| {
            let user = user.as_instruction();
            user.is_some_and(|it| it.callee() == Some(*function) && it.function() == Some(function))
        };
        let is_fit = !function.is_declaration()
            && !instrument::is_elsewhere(function)
            && function.users().any(calls_itself)
            && !function.has(kinds.noinline)
            && !function.has(kinds.optnone)
            && values::is_copyable(kinds, function);
        if !is_fit {
            return None;
        }
        let size = function.instructions().take(MOST + 1).count();
        let calls = frequent_calls(weights, function)?;
        let bytes = bytes_of_variables(module, function)?;
        let copies_at = |level: u32| calls.len().saturating_pow(level);
        let (mut bodies, mut levels) = (1, 0);
        while levels < LEVELS {
            let more = bodies + copies_at(levels + 1);
            if size * more > MOST || bytes * more as u64 > BYTES {
                break;
            }
            (bodies, levels) = (more, levels + 1);
        }
        (levels > 0).then_some(Recursion {
            function,
            calls,
            levels,
        })
    }

    fn unroll(&self, context: &LlvmContext, module: &OwnedModule, kinds: &AttributeKinds) {
        let mut next = self.function;
        for _ in 0..self.levels {
            next = self.copy(context, module, kinds, next);
        }
        for &call in &self.calls {
            set_callee(call, next);
        }
    }

    /// A copy of the function, which calls `next` in place of itself.
    fn copy(
        &self,
        context: &LlvmContext,
        module: &OwnedModule,
        kinds: &AttributeKinds,
        next: FunctionRef<'m>,
    ) -> FunctionRef<'m> {
        let old = self.function;
        // SAFETY: a live module and function; the copy has its type, so parameters of the same types.
        let copy = unsafe {
            let ty = LLVMGlobalGetValueType(old.raw());
            let copy = FunctionRef::of(LLVMAddFunction(module.raw(), COPY.as_ptr(), ty));
            LLVMSetLinkage(copy.raw(), LLVMLinkage::LLVMInternalLinkage);
            LLVMSetFunctionCallConv(copy.raw(), LLVMGetFunctionCallConv(old.raw()));
            if LLVMHasPersonalityFn(old.raw()) != 0 {
                LLVMSetPersonalityFn(copy.raw(), LLVMGetPersonalityFn(old.raw()));
            }
            copy
        };
        copy_attributes(old, copy, None);
        for name in OWN {
            copy.remove(attributes::kind(name));
        }
        copy.add(kinds.always_inline);
        let mut body = Level::new(context, old, copy);
        body.fill(old);
        for call in &self.calls {
            let copied = body.values.get(&**call).and_then(|it| it.as_instruction());
            if let Some(copied) = copied {
                set_callee(copied, next);
            }
        }
        copy
    }
}

/// Makes a call one of another function of the same type.
fn set_callee(call: InstructionRef<'_>, callee: FunctionRef<'_>) {
    let last = call.operands().len().saturating_sub(1);
    // SAFETY: a live call, whose last operand is the callee; both callees are functions of one type.
    unsafe { LLVMSetOperand(call.raw(), last as u32, callee.raw()) };
}

/// The calls by which a function calls itself often; `None` if there are none, or it has a call that
/// forbids copies.
fn frequent_calls<'m>(
    weights: &Weights,
    function: FunctionRef<'m>,
) -> Option<Vec<InstructionRef<'m>>> {
    let flow = Flow::of(function);
    let times = times_per_entry(weights, &flow);
    let mut calls = Vec::new();
    let mut all = 0.0;
    for (block, &times) in flow.blocks.iter().zip(&times) {
        for call in block.instructions() {
            let Some(callee) = call.callee() else {
                continue;
            };
            // SAFETY: a live call.
            let (bundles, ty) = unsafe {
                let bundles = LLVMGetNumOperandBundles(call.raw());
                (bundles, LLVMGetCalledFunctionType(call.raw()))
            };
            if bundles > 0 || callee.as_function().is_some_and(reads_its_frame) {
                return None;
            }
            // SAFETY: a live function.
            let same =
                callee == *function && ty == unsafe { LLVMGlobalGetValueType(function.raw()) };
            if same && times >= SELDOM {
                all += times;
                calls.push(call);
            }
        }
    }
    (all >= FEW).then_some(calls)
}

/// How often each block runs per entry, as far as that is known: ways without weights are equally
/// likely, and a loop has [`PASSES`].
fn times_per_entry(weights: &Weights, flow: &Flow<'_>) -> Vec<f64> {
    let order = flow.graph.reverse_postorder();
    let mut place = vec![usize::MAX; flow.blocks.len()];
    for (at, &block) in order.iter().enumerate() {
        place[block as usize] = at;
    }
    let mut times = vec![0.0; flow.blocks.len()];
    times[0] = 1.0;
    for &block in &order {
        let own = times[block as usize];
        let ways = flow.graph.successors(block);
        let end = flow.blocks[block as usize].terminator();
        let known = end.map(|end| weights.of_ways(end)).unwrap_or_default();
        let sum: u64 = known.iter().sum();
        for (at, &to) in ways.iter().enumerate() {
            let part = match known.get(at) {
                Some(&weight) if known.len() == ways.len() && sum > 0 => weight as f64 / sum as f64,
                _ => 1.0 / ways.len() as f64,
            };
            if place[to as usize] > place[block as usize] {
                times[to as usize] += own * part;
            }
        }
    }
    let loops = flow.graph.loops(&flow.graph.back_edges());
    for it in loops.iter().flatten() {
        let inside = times.iter_mut().zip(&it.inside);
        for (times, _) in inside.filter(|(_, is_inside)| **is_inside) {
            *times *= PASSES;
        }
    }
    times
}

/// Whether an intrinsic is about the frame that it is called in.
fn reads_its_frame(callee: FunctionRef<'_>) -> bool {
    /// Beginnings of their names.
    const OF_FRAMES: [&str; 8] = [
        "llvm.addressofreturnaddress",
        "llvm.eh.",
        "llvm.frameaddress",
        "llvm.local",
        "llvm.returnaddress",
        "llvm.sponentry",
        "llvm.stack",
        "llvm.va_",
    ];
    callee.is_intrinsic() && {
        let name = callee.name();
        OF_FRAMES.iter().any(|it| name.starts_with(it))
    }
}

/// Bytes of the local variables of a function; `None` if they are not known.
fn bytes_of_variables(module: &OwnedModule, function: FunctionRef<'_>) -> Option<u64> {
    let mut bytes = 0u64;
    let mut blocks = function.blocks();
    let entry = blocks.next()?;
    for variable in entry.instructions().filter(is_alloca) {
        // SAFETY: a live `alloca` of a module, whose operand is the number of elements.
        bytes += unsafe {
            let count = variable.operands().next()??;
            if LLVMIsAConstantInt(count.raw()).is_null() {
                return None;
            }
            let layout = LLVMGetModuleDataLayout(module.raw());
            let size = LLVMABISizeOfType(layout, LLVMGetAllocatedType(variable.raw()));
            size.saturating_mul(LLVMConstIntGetZExtValue(count.raw()))
        };
    }
    let is_dynamic = blocks.any(|block| block.instructions().any(|it| is_alloca(&it)));
    (!is_dynamic).then_some(bytes)
}

fn is_alloca(it: &InstructionRef<'_>) -> bool {
    it.opcode() == LLVMOpcode::LLVMAlloca
}

/// A copy of a body in its own module.
struct Level<'m> {
    builder: Builder,
    /// Old arguments, blocks and instructions, and the new ones.
    values: FxHashMap<ValueRef<'m>, ValueRef<'m>>,
}

impl<'m> Level<'m> {
    /// An empty block for each block of `old`.
    fn new(context: &LlvmContext, old: FunctionRef<'m>, new: FunctionRef<'m>) -> Level<'m> {
        let mut values = FxHashMap::default();
        // SAFETY: live functions of the context, with parameters of the same types.
        unsafe {
            for at in 0..LLVMCountParams(old.raw()) {
                let [old, new] = [old, new].map(|it| ValueRef::of(LLVMGetParam(it.raw(), at)));
                values.insert(old, new);
            }
            for block in old.blocks() {
                let copy = LLVMAppendBasicBlockInContext(context.raw(), new.raw(), c"".as_ptr());
                values.insert(block.value(), BlockRef::of(copy).value());
            }
        }
        let builder = Builder::new(context);
        Level { builder, values }
    }

    fn fill(&mut self, old: FunctionRef<'m>) {
        let mut phis = Vec::new();
        let mut copies = Vec::new();
        for block in old.blocks() {
            // SAFETY: the copy of the block, which is empty; live instructions, which are put at its
            // end in their order.
            unsafe {
                LLVMPositionBuilderAtEnd(self.builder.0, self.block(block).raw());
                for instruction in block.instructions() {
                    let copy = match instruction.opcode() {
                        LLVMOpcode::LLVMPHI => {
                            let copy = self.empty_phi(instruction);
                            phis.push((instruction, copy));
                            copy
                        }
                        _ => {
                            let copy = LLVMInstructionClone(instruction.raw());
                            LLVMInsertIntoBuilder(self.builder.0, copy);
                            copies.push(InstructionRef::of(copy));
                            InstructionRef::of(copy)
                        }
                    };
                    self.values.insert(*instruction, *copy);
                }
            }
        }
        for copy in copies {
            for (at, operand) in copy.operands().enumerate() {
                if let Some(new) = operand.and_then(|it| self.values.get(&it)) {
                    // SAFETY: a live instruction, and a value of the same type.
                    unsafe { LLVMSetOperand(copy.raw(), at as u32, new.raw()) };
                }
            }
        }
        for (old, new) in phis {
            self.fill_phi(old, new);
        }
    }

    /// # Safety
    /// A phi; the builder is in the copy of its block.
    unsafe fn empty_phi(&self, old: InstructionRef<'m>) -> InstructionRef<'m> {
        // SAFETY: by the caller's promise.
        unsafe {
            let phi = LLVMBuildPhi(self.builder.0, LLVMTypeOf(old.raw()), c"".as_ptr());
            if LLVMCanValueUseFastMathFlags(old.raw()) != 0 {
                LLVMSetFastMathFlags(phi, LLVMGetFastMathFlags(old.raw()));
            }
            InstructionRef::of(phi)
        }
    }

    fn fill_phi(&self, old: InstructionRef<'m>, new: InstructionRef<'m>) {
        // SAFETY: live phis, and an index below the count; all blocks have a copy.
        unsafe {
            for at in 0..LLVMCountIncoming(old.raw()) {
                let value = ValueRef::of(LLVMGetIncomingValue(old.raw(), at));
                let block = BlockRef::of(LLVMGetIncomingBlock(old.raw(), at));
                let mut value = self.values.get(&value).unwrap_or(&value).raw();
                let mut block = self.block(block).raw();
                LLVMAddIncoming(new.raw(), &mut value, &mut block, 1);
            }
        }
    }

    /// The copy of a block.
    fn block(&self, old: BlockRef<'m>) -> BlockRef<'m> {
        let copy = self.values[&old.value()];
        // SAFETY: the copy of a block is one.
        unsafe { BlockRef::of(LLVMValueAsBasicBlock(copy.raw())) }
    }
}
