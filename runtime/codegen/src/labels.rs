//! Where the addresses of a function's labels (`&&label`) go.
//!
//! A label's address is good for one version only: jumped to from another version's
//! frame it ends in code that expects other registers. Used for a jump in the same call
//! it is harmless; kept in memory (direct-threaded interpreters translate their program
//! to label addresses) it ties all later calls to this version.
//!
//! The walk follows the address from the block through what only passes it on (phi,
//! select, freeze, casts, loads from constant tables of the function's own, and local
//! variables that are only loaded and stored). Ends in `indirectbr` and in comparisons
//! are harmless, every other use counts as an escape. So does a coroutine that is still
//! to be split: its frame, wherever that is kept, holds the addresses of its parts. Differences of labels are integers
//! that are walked the same way.
//!
//! # Why
//! A function whose labels' addresses may be stored keeps its first version
//! (`codegen::labels`), compiled at tier 2 at once: a direct-threaded interpreter jumps to
//! addresses that an earlier call stored. So does a coroutine that is split here: its frame
//! holds the addresses of its parts.

use inkwell::llvm_sys::core::{
    LLVMBasicBlockAsValue, LLVMGetCalledValue, LLVMGetFirstBasicBlock, LLVMGetFirstUse,
    LLVMGetInitializer, LLVMGetInstructionOpcode, LLVMGetIntrinsicID, LLVMGetNextBasicBlock,
    LLVMGetNextUse, LLVMGetOperand, LLVMGetUser, LLVMGetValueKind, LLVMIsAFunction,
    LLVMIsGlobalConstant,
};
use inkwell::llvm_sys::prelude::{LLVMUseRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMOpcode, LLVMValueKind};
use rustc_hash::FxHashSet;

/// What a function does with the addresses of its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Labels {
    /// It takes none.
    #[default]
    None,
    /// They are used for jumps within a call.
    Inside,
    /// They, or those of a coroutine's parts, may outlive a call: the function must keep
    /// the version that took them.
    Escape,
}

/// Values looked at before an escape is assumed.
const WORK: usize = 100_000;

/// What the labels of `function` are used for.
///
/// # Safety
/// `function` is a live function with a well-formed body.
pub(crate) unsafe fn of(function: LLVMValueRef) -> Labels {
    let mut walk = Walk::default();
    // SAFETY: walks the blocks of a live function and their use lists.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            for user in users(LLVMBasicBlockAsValue(block)) {
                if LLVMGetValueKind(user) == LLVMValueKind::LLVMBlockAddressValueKind {
                    walk.add(user);
                }
            }
            block = LLVMGetNextBasicBlock(block);
        }
        if walk.seen.is_empty() {
            return Labels::None;
        }
        match walk.escapes() {
            true => Labels::Escape,
            false => Labels::Inside,
        }
    }
}

#[derive(Default)]
struct Walk {
    seen: FxHashSet<LLVMValueRef>,
    open: Vec<LLVMValueRef>,
}

impl Walk {
    fn add(&mut self, value: LLVMValueRef) {
        if self.seen.insert(value) {
            self.open.push(value);
        }
    }

    /// Follows all that was added.
    ///
    /// # Safety
    /// All added values are live.
    unsafe fn escapes(&mut self) -> bool {
        while let Some(value) = self.open.pop() {
            if self.seen.len() > WORK {
                return true;
            }
            // SAFETY: by the caller's promise; users of live values are live.
            for user in unsafe { users(value) } {
                // SAFETY: as above.
                if unsafe { self.use_escapes(value, user) } {
                    return true;
                }
            }
        }
        false
    }

    /// # Safety
    /// Both are live, and `user` uses `value`.
    unsafe fn use_escapes(&mut self, value: LLVMValueRef, user: LLVMValueRef) -> bool {
        // SAFETY: by the caller's promise; each question fits the kind of value.
        unsafe {
            match LLVMGetValueKind(user) {
                LLVMValueKind::LLVMInstructionValueKind => {}
                LLVMValueKind::LLVMGlobalVariableValueKind => {
                    // A table: its loads are followed, if nobody can write to it.
                    let table =
                        LLVMGetInitializer(user) == value && LLVMIsGlobalConstant(user) != 0;
                    self.add(user);
                    return !table;
                }
                LLVMValueKind::LLVMConstantExprValueKind
                | LLVMValueKind::LLVMConstantArrayValueKind
                | LLVMValueKind::LLVMConstantStructValueKind
                | LLVMValueKind::LLVMConstantVectorValueKind => {
                    self.add(user);
                    return false;
                }
                _ => return true,
            }
            match LLVMGetInstructionOpcode(user) {
                LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMICmp => false,
                LLVMOpcode::LLVMPHI
                | LLVMOpcode::LLVMSelect
                | LLVMOpcode::LLVMFreeze
                | LLVMOpcode::LLVMBitCast
                | LLVMOpcode::LLVMIntToPtr
                | LLVMOpcode::LLVMPtrToInt
                | LLVMOpcode::LLVMTrunc
                | LLVMOpcode::LLVMSExt
                | LLVMOpcode::LLVMZExt
                | LLVMOpcode::LLVMAdd
                | LLVMOpcode::LLVMSub
                | LLVMOpcode::LLVMLoad
                | LLVMOpcode::LLVMGetElementPtr => {
                    self.add(user);
                    false
                }
                // What is stored is followed from the variable, if that is all there is
                // to it; storing to a followed place adds nothing.
                LLVMOpcode::LLVMStore => {
                    LLVMGetOperand(user, 0) == value && !self.follow_local(LLVMGetOperand(user, 1))
                }
                LLVMOpcode::LLVMCall => !is_harmless(user),
                _ => true,
            }
        }
    }

    /// Whether `place` is a local variable; its uses are followed then.
    ///
    /// # Safety
    /// `place` is live.
    unsafe fn follow_local(&mut self, place: LLVMValueRef) -> bool {
        // SAFETY: by the caller's promise.
        unsafe {
            let local = LLVMGetValueKind(place) == LLVMValueKind::LLVMInstructionValueKind
                && LLVMGetInstructionOpcode(place) == LLVMOpcode::LLVMAlloca;
            if local {
                self.add(place);
            }
            local
        }
    }
}

/// Calls of intrinsics keep nothing: lifetimes, debug info.
///
/// # Safety
/// `call` is a live call.
unsafe fn is_harmless(call: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        let callee = LLVMGetCalledValue(call);
        if LLVMIsAFunction(callee).is_null() || LLVMGetIntrinsicID(callee) == 0 {
            return false;
        }
        let mut length = 0;
        let id = LLVMGetIntrinsicID(callee);
        let name = inkwell::llvm_sys::core::LLVMIntrinsicGetName(id, &mut length);
        let name = std::slice::from_raw_parts(name.cast::<u8>(), length);
        name.starts_with(b"llvm.lifetime.") || name.starts_with(b"llvm.dbg.")
    }
}

/// The users of a value.
///
/// # Safety
/// `value` is live while the iterator is used.
unsafe fn users(value: LLVMValueRef) -> impl Iterator<Item = LLVMValueRef> {
    // SAFETY: by the caller's promise.
    let mut item: LLVMUseRef = unsafe { LLVMGetFirstUse(value) };
    std::iter::from_fn(move || {
        if item.is_null() {
            return None;
        }
        // SAFETY: an item of the use list of a live value.
        unsafe {
            let user = LLVMGetUser(item);
            item = LLVMGetNextUse(item);
            Some(user)
        }
    })
}
