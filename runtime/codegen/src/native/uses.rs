//! Uses of a variable's address: what a module does with a variable of which nobody has the address.
//!
//! Pure, and walked twice: the survey tells of the uses what a choice needs ([`Uses`]), and the edit
//! changes those that were told of.
//!
//! # Rules
//! The address is followed through `getelementptr`, as an instruction and as a constant, and through
//! nothing else.
//!
//! | use | is |
//! |---|---|
//! | a load | a read |
//! | a store to it | a write |
//! | the source of `llvm.memcpy`, `llvm.memmove` | a read, of a size that is not told |
//! | the destination of these or of `llvm.memset` | a write, of a size that is not told |
//! | volatile, atomic, and all others: a call, a comparison, an initializer, being stored | not followed: [`Uses::Any`] |

use std::collections::BTreeMap;

use inkwell::llvm_sys::core::{
    LLVMConstIntGetSExtValue, LLVMConstIntGetZExtValue, LLVMGetConstOpcode, LLVMGetElementType,
    LLVMGetGEPSourceElementType, LLVMGetIntTypeWidth, LLVMGetMDKindIDInContext, LLVMGetMetadata,
    LLVMGetOrdering, LLVMGetPointerAddressSpace, LLVMGetSection, LLVMGetTypeContext,
    LLVMGetTypeKind, LLVMGetVolatile, LLVMGlobalGetValueType, LLVMIsExternallyInitialized,
    LLVMIsNull, LLVMStructGetTypeAtIndex, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMTypeRef;
use inkwell::llvm_sys::target::{
    LLVMABISizeOfType, LLVMOffsetOfElement, LLVMSizeOfTypeInBits, LLVMTargetDataRef,
};
use inkwell::llvm_sys::{LLVMAtomicOrdering, LLVMOpcode, LLVMTypeKind, LLVMValueKind};

use crate::handles::{InstructionRef, ValueRef, VariableRef};

/// What a module does with a variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Uses {
    /// More than is followed: somebody may have its address.
    #[default]
    Any,
    /// It is read at most: its first value is its value.
    Read,
    /// It is written, and never read.
    Written,
    /// Loads and stores of these bytes, by their places.
    Accessed(Vec<Access>),
}

/// Bytes of a variable that a load or a store is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// From the variable's beginning.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// The optimizer may have made a flag of it, which says the same in other words.
    pub flag: bool,
}

/// What a use does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Read,
    Write,
}

/// A use that is followed to its end.
pub(super) struct Use<'m> {
    /// The instruction.
    pub instruction: InstructionRef<'m>,
    /// Which of its operands the address is.
    pub operand: u32,
    /// How far from the variable's beginning, if that is always the same.
    pub offset: Option<i64>,
    /// Its bytes, if they are told and whole.
    size: Option<u64>,
    effect: Effect,
}

/// All that a variable's address is used for.
pub(super) struct Followed<'m> {
    /// The uses.
    pub uses: Vec<Use<'m>>,
    /// Instructions that compute addresses, each behind those that it is computed from.
    pub steps: Vec<InstructionRef<'m>>,
}

/// The uses of a variable; `None`, if some use is not followed.
pub(super) fn follow<'m>(
    variable: VariableRef<'m>,
    layout: LLVMTargetDataRef,
) -> Option<Followed<'m>> {
    let mut followed = Followed {
        uses: Vec::new(),
        steps: Vec::new(),
    };
    let mut left: Vec<(ValueRef<'m>, Option<i64>)> = vec![(*variable, Some(0))];
    while let Some((address, offset)) = left.pop() {
        for user in address.users() {
            let instruction = user.as_instruction();
            if is_step(user) {
                let step = step(user, layout);
                let sum = offset
                    .zip(step)
                    .map(|(offset, step)| offset.wrapping_add(step));
                left.push((user, sum));
                followed.steps.extend(instruction);
                continue;
            }
            let (operand, effect, size) = end(instruction?, address, layout)?;
            followed.uses.push(Use {
                instruction: instruction?,
                operand,
                offset,
                size,
                effect,
            });
        }
    }
    Some(followed)
}

/// What a module does with a variable, told by all uses of it.
pub(super) fn uses(variable: VariableRef<'_>, layout: LLVMTargetDataRef) -> Uses {
    // SAFETY: a live variable; its section is a string that ends, or null.
    let is_special = unsafe {
        let section = LLVMGetSection(variable.raw());
        let space = LLVMGetPointerAddressSpace(LLVMTypeOf(variable.raw()));
        let named = !section.is_null() && *section != 0;
        named || space != 0 || LLVMIsExternallyInitialized(variable.raw()) != 0
    };
    let Some(followed) = follow(variable, layout).filter(|_| !is_special) else {
        return Uses::Any;
    };
    if !followed.uses.iter().any(|it| it.effect == Effect::Write) {
        return Uses::Read;
    }
    if !followed.uses.iter().any(|it| it.effect == Effect::Read) {
        return Uses::Written;
    }
    let starts_as_zero = is_zero(variable);
    let mut accesses: BTreeMap<(u64, u64), bool> = BTreeMap::new();
    for it in &followed.uses {
        let offset = it.offset.and_then(|offset| u64::try_from(offset).ok());
        let (Some(offset), Some(size)) = (offset, it.size) else {
            return Uses::Any;
        };
        let may_change = size == 1 && !(starts_as_zero && keeps_bit(it));
        *accesses.entry((offset, size)).or_default() |= may_change;
    }
    let accesses = accesses.into_iter();
    let accesses = accesses.map(|((offset, size), flag)| Access { offset, size, flag });
    Uses::Accessed(accesses.collect())
}

/// Whether a variable is a byte that the optimizer may have made a flag of: of a variable that only
/// ever has two values it keeps whether it has the second one. If these are 0 and 1, in this order,
/// the bytes are the same.
///
/// Whoever looks at the module only cannot tell how many values there are: inlined functions store
/// constants. So a byte is one unless it begins as 0 and all that is stored are bits. What is only
/// accessed as volatile, or as atomic, the optimizer lets alone.
///
/// Of a byte whose address goes elsewhere it makes none, unless inlining shows where all of it goes: it
/// may if that is a variable or a function of the module. What is loaded with a promise that it is 0 or
/// 1 has the same bytes as a flag.
pub(super) fn is_flag(variable: VariableRef<'_>, layout: LLVMTargetDataRef) -> bool {
    // SAFETY: a live variable, and its type, which is sized.
    let is_byte = unsafe {
        let kind = LLVMGlobalGetValueType(variable.raw());
        LLVMGetTypeKind(kind) == LLVMTypeKind::LLVMIntegerTypeKind
            && LLVMABISizeOfType(layout, kind) == 1
    };
    if !is_byte {
        return false;
    }
    let all_fixed = variable.users().all(|user| {
        let access = user.as_instruction().filter(|it| is_access(*it));
        access.is_some_and(|access| !is_plain(access))
    });
    if all_fixed {
        return false;
    }
    let keeps = match follow(variable, layout) {
        Some(followed) => followed
            .uses
            .iter()
            .all(|it| it.size.is_some() && keeps_bit(it)),
        None => variable.users().any(|user| is_given_away(user, variable)),
    };
    !(is_zero(variable) && (keeps || variable.users().any(is_truth)))
}

/// Whether a use gives the address of a variable to a function without a body here, which may store
/// anything; or returns it from a function whose callers keep it in memory that is not their frame.
fn is_given_away(user: ValueRef<'_>, variable: VariableRef<'_>) -> bool {
    let ends = user.as_instruction();
    let ends = ends.filter(|it| it.opcode() == LLVMOpcode::LLVMRet);
    if let Some(function) = ends.and_then(InstructionRef::function) {
        let calls = function.users().filter_map(ValueRef::as_instruction);
        let mut calls =
            calls.filter(|call| call.callee().map(|it| it.raw()) == Some(function.raw()));
        return calls.any(|call| call.users().any(|user| is_kept(user, *call)));
    }
    let callee = user.as_instruction().and_then(|it| it.callee());
    let callee = callee.filter(|callee| callee.raw() != variable.raw());
    let callee = callee.and_then(|callee| callee.as_function());
    callee.is_some_and(|callee| callee.is_declaration() && !callee.is_intrinsic())
}

/// Whether a use stores a value where no frame and no variable of the module is: nothing says who
/// reads it.
fn is_kept(user: ValueRef<'_>, value: ValueRef<'_>) -> bool {
    let store = user.as_instruction();
    let store = store.filter(|it| it.opcode() == LLVMOpcode::LLVMStore);
    let operands: Vec<ValueRef<'_>> =
        store.map_or_else(Vec::new, |it| it.operands().flatten().collect());
    let &[stored, mut place] = operands.as_slice() else {
        return false;
    };
    while is_step(place) {
        let step = place.as_instruction();
        match step.and_then(|it| it.operands().next().flatten()) {
            Some(from) => place = from,
            None => return false,
        }
    }
    let loaded = place.as_instruction();
    let is_loaded = loaded.is_some_and(|it| it.opcode() == LLVMOpcode::LLVMLoad);
    stored.raw() == value.raw() && is_loaded
}

/// Whether it loads what is said to be 0 or 1.
fn is_truth(user: ValueRef<'_>) -> bool {
    let load = user.as_instruction();
    let load = load.filter(|it| it.opcode() == LLVMOpcode::LLVMLoad);
    load.is_some_and(|load| {
        let name = "range";
        // SAFETY: pointer and length describe the name; a live instruction.
        unsafe {
            let context = LLVMGetTypeContext(LLVMTypeOf(load.raw()));
            let length = name.len() as u32;
            let kind = LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), length);
            !LLVMGetMetadata(load.raw(), kind).is_null()
        }
    })
}

/// Whether a variable's first value is nothing but zeroes.
fn is_zero(variable: VariableRef<'_>) -> bool {
    let initializer = variable.initializer();
    // SAFETY: a live constant.
    initializer.is_some_and(|it| unsafe { LLVMIsNull(it.raw()) } != 0)
}

/// Whether a use leaves 0 or 1 in a byte that had one of them: it reads, or it stores a constant or a
/// widened bit.
fn keeps_bit(it: &Use<'_>) -> bool {
    if it.effect == Effect::Read {
        return true;
    }
    let value = it.instruction.operands().next().flatten();
    value.is_some_and(|value| {
        if value.kind() == LLVMValueKind::LLVMConstantIntValueKind {
            // SAFETY: a live number of eight bits, as the store is of a byte.
            return unsafe { LLVMConstIntGetZExtValue(value.raw()) } <= 1;
        }
        let widened = value.as_instruction();
        let widened = widened.filter(|it| it.opcode() == LLVMOpcode::LLVMZExt);
        let narrow = widened.and_then(|it| it.operands().next().flatten());
        narrow.is_some_and(|narrow| {
            // SAFETY: a live value, and its type.
            unsafe {
                let kind = LLVMTypeOf(narrow.raw());
                LLVMGetTypeKind(kind) == LLVMTypeKind::LLVMIntegerTypeKind
                    && LLVMGetIntTypeWidth(kind) == 1
            }
        })
    })
}

/// Whether it computes an address from one.
fn is_step(user: ValueRef<'_>) -> bool {
    let opcode = match user.as_instruction() {
        Some(instruction) => instruction.opcode(),
        // SAFETY: a live expression.
        None if user.kind() == LLVMValueKind::LLVMConstantExprValueKind => unsafe {
            LLVMGetConstOpcode(user.raw())
        },
        None => return false,
    };
    opcode == LLVMOpcode::LLVMGetElementPtr
}

/// What an instruction that uses an address does with it: at which operand, and with how many bytes,
/// if that is told.
fn end(
    instruction: InstructionRef<'_>,
    address: ValueRef<'_>,
    layout: LLVMTargetDataRef,
) -> Option<(u32, Effect, Option<u64>)> {
    let operands: Vec<ValueRef<'_>> = instruction.operands().flatten().collect();
    let mut places = (0..).zip(&operands).filter(|(_, it)| **it == address);
    let (place, _) = places.next()?;
    // Memory that is copied to itself is used twice; nothing else that is followed is.
    let once = places.next().is_none();
    match (instruction.opcode(), place) {
        (LLVMOpcode::LLVMLoad, 0) if once && is_plain(instruction) => {
            Some((place, Effect::Read, whole_size(*instruction, layout)))
        }
        (LLVMOpcode::LLVMStore, 1) if once && is_plain(instruction) => {
            Some((place, Effect::Write, whole_size(operands[0], layout)))
        }
        (LLVMOpcode::LLVMCall, _) if once => {
            let name = instruction.callee()?.as_function()?;
            let name = Some(name).filter(|it| it.is_intrinsic())?.name();
            let copies = ["llvm.memcpy.", "llvm.memmove."];
            let copies = copies.iter().any(|start| name.starts_with(start));
            let effect = match place {
                0 if copies || name.starts_with("llvm.memset.") => Effect::Write,
                1 if copies => Effect::Read,
                _ => return None,
            };
            // SAFETY: the fourth argument of these says whether they are volatile: a constant.
            let plain = unsafe { LLVMIsNull(operands.get(3)?.raw()) } != 0;
            plain.then_some((place, effect, None))
        }
        _ => None,
    }
}

fn is_access(instruction: InstructionRef<'_>) -> bool {
    matches!(
        instruction.opcode(),
        LLVMOpcode::LLVMLoad | LLVMOpcode::LLVMStore
    )
}

/// Whether a load or a store is neither volatile nor atomic.
fn is_plain(access: InstructionRef<'_>) -> bool {
    // SAFETY: a live load or store.
    unsafe {
        LLVMGetVolatile(access.raw()) == 0
            && LLVMGetOrdering(access.raw()) == LLVMAtomicOrdering::LLVMAtomicOrderingNotAtomic
    }
}

/// How many bytes a value has in memory, if all their bits are its own.
fn whole_size(value: ValueRef<'_>, layout: LLVMTargetDataRef) -> Option<u64> {
    // SAFETY: a live value, whose type is sized, as it is loaded or stored.
    let kind = unsafe { LLVMTypeOf(value.raw()) };
    whole_size_of(kind, layout)
}

fn whole_size_of(kind: LLVMTypeRef, layout: LLVMTargetDataRef) -> Option<u64> {
    // SAFETY: a type that is sized; of a fixed size, where that is asked for.
    unsafe {
        if LLVMGetTypeKind(kind) == LLVMTypeKind::LLVMScalableVectorTypeKind {
            return None;
        }
        let size = LLVMABISizeOfType(layout, kind);
        (LLVMSizeOfTypeInBits(layout, kind) == size * 8).then_some(size)
    }
}

/// How far a `getelementptr` goes, if that is always the same.
fn step(step: ValueRef<'_>, layout: LLVMTargetDataRef) -> Option<i64> {
    let operands: Vec<ValueRef<'_>> = match step.as_instruction() {
        Some(instruction) => instruction.operands().flatten().collect(),
        None => step.parts().collect(),
    };
    // SAFETY: a live `getelementptr`, as an instruction or as a constant.
    let mut kind = unsafe { LLVMGetGEPSourceElementType(step.raw()) };
    let mut sum = 0_i64;
    for (place, index) in operands.into_iter().skip(1).enumerate() {
        let index = number(index)?;
        // SAFETY: the types are those that the indices, which LLVM has checked, lead through.
        let distance = unsafe {
            if place == 0 {
                index.wrapping_mul(LLVMABISizeOfType(layout, kind) as i64)
            } else if LLVMGetTypeKind(kind) == LLVMTypeKind::LLVMStructTypeKind {
                let field = index as u32;
                let from = LLVMOffsetOfElement(layout, kind, field);
                kind = LLVMStructGetTypeAtIndex(kind, field);
                from as i64
            } else {
                kind = LLVMGetElementType(kind);
                index.wrapping_mul(whole_size_of(kind, layout)? as i64)
            }
        };
        sum = sum.wrapping_add(distance);
    }
    Some(sum)
}

/// The value of a constant number.
fn number(value: ValueRef<'_>) -> Option<i64> {
    if value.kind() != LLVMValueKind::LLVMConstantIntValueKind {
        return None;
    }
    // SAFETY: a live number; LLVM gives those of up to 64 bits.
    unsafe {
        let width = LLVMGetIntTypeWidth(LLVMTypeOf(value.raw()));
        (width <= 64).then(|| LLVMConstIntGetSExtValue(value.raw()))
    }
}
