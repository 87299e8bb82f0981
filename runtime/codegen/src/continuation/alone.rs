//! Pointers that cross and promise `noalias`, where the continuation can be promised the same.
//!
//! A parameter of the function is `noalias` to who wrote it (C's `restrict`, references of Rust),
//! an `alloca` of variable length is so by itself. In the continuation the pointer comes in
//! beside others, and loops that were vectorized without a question would ask for overlaps, or
//! stay as they are. The promise holds there, too, if nothing else that crosses, and no memory,
//! can hold a pointer made of it:
//!
//! ```text
//! alone(p) = what is made of p is an address of loads and stores, in the block it is made in
//!            and p is a parameter with the promise, or an alloca of variable length
//!         or v holds it: an alloca that never leaves, with one store of such a parameter, in the
//!            entry, where nothing else uses the parameter; and each load of v is as p above
//! ```
//!
//! What the continuation does with its parameter is then all that is done with the object while
//! it runs: the frame below waits for it.

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMGetEnumAttributeAtIndex, LLVMGetEnumAttributeKindForName, LLVMGetInstructionParent,
};
use rustc_hash::FxHashSet;

use super::allocas::Uses;
use super::frame::{Kind, Variable, is_static, parameters};
use super::reasons::{Meaning, is_intrinsic};
use crate::handles::{FunctionRef, InstructionRef, ValueRef};

/// Those of the variables that hold a pointer nothing else leads to.
pub(super) fn alone<'m>(
    function: FunctionRef<'m>,
    variables: &[Variable<'m>],
) -> FxHashSet<ValueRef<'m>> {
    let promised = promised(function);
    let is_alone = |variable: &&Variable<'m>| {
        let value = variable.value;
        match (variable.kind, value.as_instruction()) {
            (Kind::Value, None) => promised.contains(&value) && stays(value, true),
            (Kind::Value, Some(made)) => {
                made.opcode() == LLVMOpcode::LLVMAlloca && !is_static(made) && stays(value, true)
            }
            (Kind::Scalar, Some(room)) => holds(function, room, &promised),
            _ => false,
        }
    };
    let found = variables.iter().filter(is_alone);
    found.map(|it| it.value).collect()
}

/// The parameters that are `noalias`.
fn promised(function: FunctionRef<'_>) -> FxHashSet<ValueRef<'_>> {
    let name = "noalias";
    let has = |index: u32| {
        // SAFETY: pointer and length describe the name; a live function, and an index of its
        // attributes, as there is one for each parameter behind that of the result.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            !LLVMGetEnumAttributeAtIndex(function.raw(), index, kind).is_null()
        }
    };
    let numbered = (1..).zip(parameters(function));
    numbered
        .filter(|(index, _)| has(*index))
        .map(|(_, parameter)| parameter)
        .collect()
}

/// True if `room`, whose address never leaves, holds a promised parameter from the entry on, and
/// what is read from it stays.
fn holds<'m>(
    function: FunctionRef<'m>,
    room: InstructionRef<'m>,
    promised: &FxHashSet<ValueRef<'m>>,
) -> bool {
    let mut stored = None;
    for user in room.users() {
        let Some(user) = user.as_instruction() else {
            return false;
        };
        match user.opcode() {
            LLVMOpcode::LLVMStore if stored.is_none() => stored = Some(user),
            LLVMOpcode::LLVMLoad if stays(*user, false) => {}
            _ if is_intrinsic(user, Meaning::is_marker) => {}
            _ => return false,
        }
    }
    let Some(store) = stored else { return false };
    let in_entry = function.blocks().next().is_some_and(|entry| {
        // SAFETY: a live instruction.
        unsafe { LLVMGetInstructionParent(store.raw()) == entry.raw() }
    });
    let value = store.operands().next().flatten();
    let is_only_use = |value: ValueRef<'m>| value.users().count() == 1;
    in_entry && value.is_some_and(|it| promised.contains(&it) && is_only_use(it))
}

/// True if no pointer made of `pointer` is used in another block than it is made in, nor but as
/// an address; what is `fixed` is itself used anywhere.
fn stays(pointer: ValueRef<'_>, fixed: bool) -> bool {
    let mut uses = Uses::default();
    let mut work = vec![(pointer, fixed)];
    while let Some((pointer, fixed)) = work.pop() {
        for user in pointer.users() {
            let Some(user) = user.as_instruction() else {
                return false;
            };
            // SAFETY: live instructions.
            let here = |made: InstructionRef<'_>| unsafe {
                LLVMGetInstructionParent(made.raw()) == LLVMGetInstructionParent(user.raw())
            };
            if !fixed && !pointer.as_instruction().is_some_and(here) {
                return false;
            }
            if uses.note(pointer, user).is_some() {
                work.push((*user, false));
            }
            if uses.captured {
                return false;
            }
        }
    }
    true
}
