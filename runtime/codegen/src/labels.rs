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

use inkwell::llvm_sys::core::LLVMIntrinsicGetName;
use inkwell::llvm_sys::{LLVMOpcode, LLVMValueKind};
use rustc_hash::FxHashSet;

use crate::handles::{FunctionRef, InstructionRef, ValueRef};

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

/// What the labels of `function`, whose body is well-formed, are used for.
pub(crate) fn of(function: FunctionRef<'_>) -> Labels {
    let mut walk = Walk::default();
    for user in function.blocks().flat_map(|block| block.value().users()) {
        if user.kind() == LLVMValueKind::LLVMBlockAddressValueKind {
            walk.add(user);
        }
    }
    if walk.seen.is_empty() {
        return Labels::None;
    }
    match walk.escapes() {
        true => Labels::Escape,
        false => Labels::Inside,
    }
}

#[derive(Default)]
struct Walk<'m> {
    seen: FxHashSet<ValueRef<'m>>,
    open: Vec<ValueRef<'m>>,
}

impl<'m> Walk<'m> {
    fn add(&mut self, value: ValueRef<'m>) {
        if self.seen.insert(value) {
            self.open.push(value);
        }
    }

    /// Follows all that was added.
    fn escapes(&mut self) -> bool {
        while let Some(value) = self.open.pop() {
            if self.seen.len() > WORK {
                return true;
            }
            if value.users().any(|user| self.use_escapes(value, user)) {
                return true;
            }
        }
        false
    }

    /// Whether `value` escapes by being used by `user`, which is followed if that depends.
    fn use_escapes(&mut self, value: ValueRef<'m>, user: ValueRef<'m>) -> bool {
        if let Some(table) = user.as_variable() {
            // A table: its loads are followed, if nobody can write to it.
            self.add(user);
            return table.initializer() != Some(value) || !table.is_constant();
        }
        if user.is_composite() {
            self.add(user);
            return false;
        }
        let Some(instruction) = user.as_instruction() else {
            return true;
        };
        match instruction.opcode() {
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
                let mut operands = instruction.operands().flatten();
                let (stored, place) = (operands.next(), operands.next());
                stored == Some(value) && !place.is_some_and(|place| self.follow_local(place))
            }
            LLVMOpcode::LLVMCall => !is_harmless(instruction),
            _ => true,
        }
    }

    /// Whether `place` is a local variable; its uses are followed then.
    fn follow_local(&mut self, place: ValueRef<'m>) -> bool {
        let instruction = place.as_instruction();
        let local = instruction.is_some_and(|it| it.opcode() == LLVMOpcode::LLVMAlloca);
        if local {
            self.add(place);
        }
        local
    }
}

/// Calls of intrinsics keep nothing: lifetimes, debug info.
fn is_harmless(call: InstructionRef<'_>) -> bool {
    let callee = call.callee().and_then(ValueRef::as_function);
    let id = callee.map_or(0, FunctionRef::intrinsic);
    if id == 0 {
        return false;
    }
    let mut length = 0;
    // SAFETY: the number of an intrinsic, whose name LLVM keeps.
    let name = unsafe {
        let start = LLVMIntrinsicGetName(id, &mut length);
        std::slice::from_raw_parts(start.cast::<u8>(), length)
    };
    name.starts_with(b"llvm.lifetime.") || name.starts_with(b"llvm.dbg.")
}
