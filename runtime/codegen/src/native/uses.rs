//! Uses of a variable's address: the module's accesses to a variable whose address does not leave.
//!
//! The walk is pure and runs twice: the survey summarizes the uses for a choice ([`Uses`]), and the
//! edit changes the same uses.
//!
//! # Rules
//! The address is followed through `getelementptr`, as an instruction and as a constant, and through
//! nothing else.
//!
//! | use | is |
//! |---|---|
//! | a load | a read |
//! | a store to it | a write |
//! | the source of `llvm.memcpy`, `llvm.memmove` | a read of unknown size |
//! | the destination of these or of `llvm.memset` | a write of unknown size |
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

/// The uses that a module makes of a variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Uses {
    /// Uses that are not followed: its address may be elsewhere.
    #[default]
    Any,
    /// It is at most read: its first value is its value.
    Read,
    /// It is written, and never read.
    Written,
    /// Loads and stores of these bytes, by their places.
    Accessed(Vec<VariableAccess>),
}

/// Bytes of a variable that a load or a store accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableAccess {
    /// From the variable's beginning.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
    /// The optimizer may have made a flag of it, with another encoding.
    pub flag: bool,
}

/// The effect of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Read,
    Write,
}

/// A use that is followed to its end.
pub(super) struct Use<'m> {
    /// The instruction.
    pub instruction: InstructionRef<'m>,
    /// The operand that is the address.
    pub operand: u32,
    /// The distance from the variable's beginning, if it is constant.
    pub offset: Option<i64>,
    /// Its bytes, if their number is known and whole.
    size: Option<u64>,
    effect: Effect,
}

/// All uses of a variable's address.
pub(super) struct Followed<'m> {
    /// The uses.
    pub uses: Vec<Use<'m>>,
    /// Instructions that compute addresses, each behind the ones it is computed from.
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

/// The uses that a module makes of a variable.
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
    let accesses = accesses.map(|((offset, size), flag)| VariableAccess { offset, size, flag });
    Uses::Accessed(accesses.collect())
}

/// Whether a variable is a byte that the optimizer may have made a flag of. For a variable that
/// only ever has two values it keeps whether it has the second one. If these are 0 and 1, in this
/// order, the bytes are the same.
///
/// The module alone does not show how many values there are: inlined functions store constants. So
/// a byte counts as a flag unless it begins as 0 and only bits are stored. The optimizer leaves
/// bytes alone that are only accessed as volatile or atomic.
///
/// The optimizer makes no flag of a byte whose address escapes, unless inlining shows all its uses.
/// This may happen if the address goes to a variable or a function of the module. A byte loaded
/// with a promise that it is 0 or 1 has the same bytes as a flag.
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

/// Whether a use passes the address of a variable to a function without a body here, which may
/// store anything. Returning it from a function whose callers keep it in memory outside of their
/// frame counts too.
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

/// Whether a use stores a value in memory that is neither in a frame nor a variable of the module:
/// its readers are unknown.
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

/// Whether it loads a value with a declared range, as of 0 or 1.
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

/// Whether a variable's first value is all zeroes.
fn is_zero(variable: VariableRef<'_>) -> bool {
    let initializer = variable.initializer();
    // SAFETY: a live constant.
    initializer.is_some_and(|it| unsafe { LLVMIsNull(it.raw()) } != 0)
}

/// Whether a use leaves 0 or 1 in a byte that had one of them: it reads, or it stores a constant or
/// a widened bit.
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

/// The effect of an instruction that uses an address: the operand, the effect, and the number of
/// bytes, if known.
fn end(
    instruction: InstructionRef<'_>,
    address: ValueRef<'_>,
    layout: LLVMTargetDataRef,
) -> Option<(u32, Effect, Option<u64>)> {
    let operands: Vec<ValueRef<'_>> = instruction.operands().flatten().collect();
    let mut places = (0..).zip(&operands).filter(|(_, it)| **it == address);
    let (place, _) = places.next()?;
    // Memory that is copied to itself is used twice; no other followed use is.
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

/// The size of a value in memory, if all bits there are its own.
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

/// The offset of a `getelementptr`, if it is constant.
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
