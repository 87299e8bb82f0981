//! A second body for the usual values of arguments.
//!
//! ```text
//! NAME(a, b):  b == 10 ? whole(a, 10) : whole(a, b)
//! ```
//!
//! `whole` is the original body. It is internal and `alwaysinline`, so the next passes copy it into
//! both arms and drop it. In the first arm the argument is a constant, and LLVM exploits it: in
//! divisions by it, trip counts of loops, and branches on it. The second arm is the original code.
//! So the result is the same for any argument, and the object has one function as before: it is
//! published, replaced and freed like any version.
//!
//! # Which arguments
//! Integers of up to 64 bits and floating-point numbers, compared bit by bit. Pointers are
//! excluded: their targets are not constant, and passes would only lose their knowledge of where
//! they point.
//! A value is *steady* by Boyer and Moore's vote over the entries that were counted
//! ([`Profile::steady_arguments`](crate::Profile::steady_arguments)).
//!
//! # Which bodies
//! Bodies that can be copied. Excluded are bodies whose labels have addresses, that take a variable
//! number of arguments, call `setjmp` or its like, must call something in their own frame
//! (`musttail`), or have more than [`MOST`] instructions.

use inkwell::llvm_sys::core::{
    LLVMAddAttributeAtIndex, LLVMAddFunction, LLVMAppendBasicBlockInContext,
    LLVMAppendExistingBasicBlock, LLVMBuildAnd, LLVMBuildBitCast, LLVMBuildCall2, LLVMBuildCondBr,
    LLVMBuildICmp, LLVMBuildRet, LLVMBuildRetVoid, LLVMConstBitCast, LLVMConstInt, LLVMCountParams,
    LLVMGetAttributeCountAtIndex, LLVMGetAttributesAtIndex, LLVMGetCallSiteEnumAttribute,
    LLVMGetEnumAttributeAtIndex, LLVMGetFirstUse, LLVMGetFunctionCallConv, LLVMGetGC,
    LLVMGetIntTypeWidth, LLVMGetParam, LLVMGetPersonalityFn, LLVMGetReturnType,
    LLVMGetTailCallKind, LLVMGetTypeKind, LLVMGlobalGetValueType, LLVMHasPersonalityFn,
    LLVMIntTypeInContext, LLVMIsFunctionVarArg, LLVMPositionBuilderAtEnd,
    LLVMRemoveBasicBlockFromParent, LLVMReplaceAllUsesWith, LLVMSetFunctionCallConv,
    LLVMSetInstructionCallConv, LLVMSetLinkage, LLVMSetPersonalityFn, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::llvm_sys::{
    LLVMAttributeFunctionIndex, LLVMIntPredicate, LLVMLinkage, LLVMOpcode, LLVMTailCallKind,
    LLVMTypeKind,
};

use crate::attributes::{AttributeKinds, kind};
use crate::context::{Builder, LlvmContext, OwnedModule};
use crate::handles::{FunctionRef, InstructionRef, ValueRef};
use crate::labels;
use crate::profile::Steady;
use crate::verifying::is_valid;
use crate::weights::ProfileNotes;

/// Most instructions of a body that is duplicated.
const MOST: usize = 4_000;

/// Most instructions of a body that gets a second one without being told to, and the values of an
/// argument for which it does, if it has loops: as a limit of a loop, such a value lets LLVM write out
/// all its passes. Second bodies everywhere gained nothing else (the Rust kernel n-body gained by them).
const SMALL: u32 = 1_000;
const LIMITS: std::ops::RangeInclusive<u64> = 2..=64;

/// Arguments that are watched, of those that could be.
const WATCHED: usize = 8;

/// Expected results of the comparison, as weights.
const WEIGHTS: [u64; 2] = [31, 1];

/// The name of the body while there are two.
const WHOLE: &std::ffi::CStr = c"uruk.whole";

/// Attributes of a function that are about its own code, not its copies'.
pub(crate) const OWN: [&str; 3] = ["noinline", "optnone", "alwaysinline"];

/// The bits of an argument that can be compared.
///
/// # Safety
/// A live value.
unsafe fn width(argument: LLVMValueRef) -> Option<u32> {
    // SAFETY: by the caller's promise.
    unsafe {
        let ty = LLVMTypeOf(argument);
        match LLVMGetTypeKind(ty) {
            LLVMTypeKind::LLVMIntegerTypeKind => {
                Some(LLVMGetIntTypeWidth(ty)).filter(|width| *width <= 64)
            }
            LLVMTypeKind::LLVMFloatTypeKind => Some(32),
            LLVMTypeKind::LLVMDoubleTypeKind => Some(64),
            _ => None,
        }
    }
}

/// The arguments of a body whose values are watched, each with its width in bits.
pub(crate) fn watched(body: FunctionRef<'_>) -> Vec<(u32, u32)> {
    // SAFETY: a live function; indices are below the count.
    unsafe {
        let used = |&index: &u32| !LLVMGetFirstUse(LLVMGetParam(body.raw(), index)).is_null();
        let all = (0..LLVMCountParams(body.raw())).filter(used);
        let numbers = all.filter_map(|at| Some((at, width(LLVMGetParam(body.raw(), at))?)));
        numbers.take(WATCHED).collect()
    }
}

/// Whether a guided body gets a second one by default.
pub(crate) fn pay(values: &[Steady], instructions: u32, loops: u32) -> bool {
    let limits = |value: &Steady| LIMITS.contains(&value.bits);
    loops > 0 && instructions <= SMALL && values.iter().any(limits)
}

/// Gives `body`, a complete copy in `module`, a second body for `values`. Returns how many of them
/// are compared, 0 if the body is unchanged.
pub(crate) fn split(
    context: &LlvmContext,
    module: &OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'_>,
    values: &[Steady],
) -> u32 {
    let watched = watched(body);
    let width_of = |steady: &Steady| {
        let found = watched.iter().find(|(at, _)| *at == steady.argument)?;
        Some((*steady, found.1))
    };
    let values: Vec<(Steady, u32)> = values.iter().filter_map(width_of).collect();
    if values.is_empty() || !is_copyable(kinds, body) {
        return 0;
    }
    // SAFETY: a complete body of a module of the context, which can be copied; each value is for
    // an argument of so many bits.
    unsafe {
        let whole = move_out(module, kinds, body);
        let arms = Arms {
            context,
            builder: Builder::new(context),
            body,
            whole,
        };
        arms.build(&values);
    }
    debug_assert!(is_valid(body), "two bodies that are no valid IR");
    values.len() as u32
}

/// Whether LLVM can put a body twice into one function.
pub(crate) fn is_copyable(kinds: &AttributeKinds, body: FunctionRef<'_>) -> bool {
    let [swifterror, noduplicate] = ["swifterror", "noduplicate"].map(kind);
    // SAFETY: a live function; indices are below the count.
    let plain = unsafe {
        let parameters = 1..=LLVMCountParams(body.raw());
        let is_swifts = |at| !LLVMGetEnumAttributeAtIndex(body.raw(), at, swifterror).is_null();
        LLVMIsFunctionVarArg(LLVMGlobalGetValueType(body.raw())) == 0
            && LLVMGetGC(body.raw()).is_null()
            && !parameters.into_iter().any(is_swifts)
    };
    let bound = |it: InstructionRef<'_>| match it.opcode() {
        LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr => true,
        _ => it.callee().is_some() && is_bound(it, &[kinds.returns_twice, noduplicate]),
    };
    let special = [kinds.naked, kinds.presplit_coroutine, kinds.returns_twice];
    plain
        && !special.iter().any(|&kind| body.has(kind))
        && !labels::has_labels(body)
        && body.instructions().take(MOST + 1).count() <= MOST
        && !body.instructions().any(bound)
}

/// Whether a call cannot be duplicated or moved: it, or its callee, has one of `kinds`.
fn is_bound(call: InstructionRef<'_>, kinds: &[u32]) -> bool {
    let callee = call.callee().and_then(ValueRef::as_function);
    let has = |&kind: &u32| {
        // SAFETY: a live call.
        let own =
            unsafe { LLVMGetCallSiteEnumAttribute(call.raw(), LLVMAttributeFunctionIndex, kind) };
        !own.is_null() || callee.is_some_and(|callee| callee.has(kind))
    };
    let is_call = call.opcode() == LLVMOpcode::LLVMCall;
    // SAFETY: a call is asked as such.
    let must = is_call
        && unsafe { LLVMGetTailCallKind(call.raw()) } == LLVMTailCallKind::LLVMTailCallKindMustTail;
    must || kinds.iter().any(has)
}

/// Moves the blocks of `body` into a function of their own, which will be inlined.
///
/// # Safety
/// A complete body of the module.
unsafe fn move_out<'m>(
    module: &'m OwnedModule,
    kinds: &AttributeKinds,
    body: FunctionRef<'m>,
) -> FunctionRef<'m> {
    // SAFETY: by the caller's promise. Blocks are taken out one by one and appended in their order;
    // both functions have parameters of the same types; there is room for all attributes.
    unsafe {
        let ty = LLVMGlobalGetValueType(body.raw());
        let whole = FunctionRef::of(LLVMAddFunction(module.raw(), WHOLE.as_ptr(), ty));
        LLVMSetLinkage(whole.raw(), LLVMLinkage::LLVMInternalLinkage);
        LLVMSetFunctionCallConv(whole.raw(), LLVMGetFunctionCallConv(body.raw()));
        let at = LLVMAttributeFunctionIndex;
        let count = LLVMGetAttributeCountAtIndex(body.raw(), at);
        let mut attributes = vec![std::ptr::null_mut(); count as usize];
        LLVMGetAttributesAtIndex(body.raw(), at, attributes.as_mut_ptr());
        for attribute in attributes {
            LLVMAddAttributeAtIndex(whole.raw(), at, attribute);
        }
        for name in OWN {
            whole.remove(kind(name));
        }
        whole.add(kinds.always_inline);
        if LLVMHasPersonalityFn(body.raw()) != 0 {
            LLVMSetPersonalityFn(whole.raw(), LLVMGetPersonalityFn(body.raw()));
        }
        let blocks: Vec<_> = body.blocks().collect();
        for block in blocks {
            LLVMRemoveBasicBlockFromParent(block.raw());
            LLVMAppendExistingBasicBlock(whole.raw(), block.raw());
        }
        for index in 0..LLVMCountParams(body.raw()) {
            let (old, new) = (
                LLVMGetParam(body.raw(), index),
                LLVMGetParam(whole.raw(), index),
            );
            LLVMReplaceAllUsesWith(old, new);
        }
        whole
    }
}

/// A function without blocks that gets two arms, and the function that both call.
struct Arms<'m> {
    context: &'m LlvmContext,
    builder: Builder,
    body: FunctionRef<'m>,
    whole: FunctionRef<'m>,
}

impl Arms<'_> {
    /// # Safety
    /// All is of one module of the context; each value is of an argument of so many bits.
    unsafe fn build(&self, values: &[(Steady, u32)]) {
        let (body, builder) = (self.body.raw(), self.builder.0);
        // SAFETY: by the caller's promise.
        unsafe {
            let block = |name: &std::ffi::CStr| {
                LLVMAppendBasicBlockInContext(self.context.raw(), body, name.as_ptr())
            };
            let (entry, usual, other) = (block(c"entry"), block(c"usual"), block(c"other"));
            LLVMPositionBuilderAtEnd(builder, entry);
            let mut arguments: Vec<LLVMValueRef> = (0..LLVMCountParams(body))
                .map(|index| LLVMGetParam(body, index))
                .collect();
            let general = arguments.clone();
            let mut all: Option<LLVMValueRef> = None;
            for &(Steady { argument, bits }, width) in values {
                let given = general[argument as usize];
                let number = LLVMIntTypeInContext(self.context.raw(), width);
                let constant = LLVMConstInt(number, bits, 0);
                let is = LLVMBuildBitCast(builder, given, number, c"".as_ptr());
                let equal = LLVMIntPredicate::LLVMIntEQ;
                let same = LLVMBuildICmp(builder, equal, is, constant, c"".as_ptr());
                all = Some(match all {
                    Some(all) => LLVMBuildAnd(builder, all, same, c"".as_ptr()),
                    None => same,
                });
                arguments[argument as usize] = LLVMConstBitCast(constant, LLVMTypeOf(given));
            }
            let Some(all) = all else { return };
            let branch = LLVMBuildCondBr(builder, all, usual, other);
            let branch = ValueRef::from_raw(branch).and_then(ValueRef::as_instruction);
            if let Some(branch) = branch {
                ProfileNotes::new(self.context).set_weights(branch, &WEIGHTS);
            }
            LLVMPositionBuilderAtEnd(builder, usual);
            self.call(&mut arguments);
            LLVMPositionBuilderAtEnd(builder, other);
            self.call(&mut general.clone());
        }
    }

    /// Calls the function of both arms, and returns its result.
    ///
    /// # Safety
    /// The builder is at the end of an arm, and arguments have the types of the parameters.
    unsafe fn call(&self, arguments: &mut [LLVMValueRef]) {
        let builder = self.builder.0;
        // SAFETY: by the caller's promise.
        unsafe {
            let ty = LLVMGlobalGetValueType(self.whole.raw());
            let count = arguments.len() as u32;
            let (callee, arguments) = (self.whole.raw(), arguments.as_mut_ptr());
            let call = LLVMBuildCall2(builder, ty, callee, arguments, count, c"".as_ptr());
            LLVMSetInstructionCallConv(call, LLVMGetFunctionCallConv(callee));
            match LLVMGetTypeKind(LLVMGetReturnType(ty)) {
                LLVMTypeKind::LLVMVoidTypeKind => LLVMBuildRetVoid(builder),
                _ => LLVMBuildRet(builder, call),
            };
        }
    }
}
