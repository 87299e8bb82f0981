//! How each variable of a body crosses: what becomes of the addresses of `alloca`s, and which
//! values are used beyond their block.

use inkwell::llvm_sys::core::{
    LLVMConstIntGetZExtValue, LLVMGetAllocatedType, LLVMGetIndices, LLVMGetInstructionParent,
    LLVMGetIntTypeWidth, LLVMGetNumIndices, LLVMGetOrdering, LLVMGetTypeKind, LLVMGetVolatile,
    LLVMIsAArgument, LLVMIsConstant, LLVMTypeIsSized, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::{LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMTargetDataRef};
use inkwell::llvm_sys::{LLVMAtomicOrdering, LLVMOpcode, LLVMTypeKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{COPIED_BYTES, Kind, Variable, is_static, parameters};
use super::reasons::{Meaning, Reason, is_intrinsic};
use crate::flow::Flow;
use crate::handles::{FunctionRef, InstructionRef, TypeRef, ValueRef};

/// What is found out about one pointer by its uses.
#[derive(Default)]
pub(super) struct Uses {
    pub(super) captured: bool,
    kept: bool,
    /// It holds nothing but saved stack pointers, for nothing but going back to them.
    stack: bool,
    /// Stores of such.
    saves: u32,
}

impl Uses {
    /// Notes what `user` does with a pointer; if it makes another one, whether by constants alone.
    pub(super) fn note(&mut self, pointer: ValueRef<'_>, user: InstructionRef<'_>) -> Option<bool> {
        match user.opcode() {
            LLVMOpcode::LLVMLoad => {
                self.kept |= is_special(user);
                self.stack &= user.users().all(|it| {
                    let it = it.as_instruction();
                    it.is_some_and(|it| is_intrinsic(it, |it| it == Meaning::StackRestore))
                });
            }
            LLVMOpcode::LLVMStore => {
                self.kept |= is_special(user);
                let value = user.operands().next().flatten();
                self.captured |= value == Some(pointer);
                let saved = value.and_then(ValueRef::as_instruction);
                let is_save =
                    saved.is_some_and(|it| is_intrinsic(it, |it| it == Meaning::StackSave));
                self.stack &= is_save;
                self.saves += u32::from(is_save);
            }
            LLVMOpcode::LLVMGetElementPtr | LLVMOpcode::LLVMBitCast => {
                self.stack = false;
                let mut operands = user.operands().flatten();
                let base = operands.next();
                // SAFETY: live values have types.
                let (fixed, ty) = unsafe {
                    let fixed = operands.all(|it| LLVMIsConstant(it.raw()) != 0);
                    (fixed, LLVMGetTypeKind(LLVMTypeOf(user.raw())))
                };
                if base == Some(pointer) && ty == LLVMTypeKind::LLVMPointerTypeKind {
                    return Some(fixed);
                }
                self.captured = true;
            }
            _ if is_intrinsic(user, Meaning::is_marker) => {}
            _ if is_intrinsic(user, |it| it == Meaning::Memory) => {
                self.stack = false;
                let volatile = user.operands().nth(3).flatten();
                // SAFETY: the flag is a constant number.
                self.kept |=
                    volatile.is_none_or(|it| unsafe { LLVMConstIntGetZExtValue(it.raw()) != 0 });
            }
            _ => {
                self.stack = false;
                self.captured = true;
            }
        }
        None
    }
}

/// All variables, and the place of each among them.
type Variables<'m> = (Vec<Variable<'m>>, FxHashMap<ValueRef<'m>, u32>);

/// What an analysis begins with.
pub(super) struct Reading<'a, 'm> {
    pub(super) flow: &'a Flow<'m>,
    pub(super) data: LLVMTargetDataRef,
    pub(super) numbers: FxHashMap<usize, u32>,
    /// Static `alloca`s, in order.
    pub(super) allocas: Vec<(ValueRef<'m>, Kind, TypeRef<'m>)>,
    pub(super) stacks: Vec<ValueRef<'m>>,
    pub(super) derived: FxHashMap<ValueRef<'m>, ValueRef<'m>>,
}

impl<'m> Reading<'_, 'm> {
    /// Finds the static `alloca`s and how each would cross.
    pub(super) fn read_allocas(&mut self) -> Result<(), Reason> {
        let Some(entry) = self.flow.blocks.first() else {
            return Ok(());
        };
        for alloca in entry.instructions().filter(|it| is_static(*it)) {
            // SAFETY: an alloca, its type, and the layout of its module.
            let (ty, bytes) = unsafe {
                let ty = LLVMGetAllocatedType(alloca.raw());
                if is_scalable(ty) {
                    return Err(Reason::Type);
                }
                let count = alloca.operands().next().flatten();
                let count = count.map_or(1, |it| LLVMConstIntGetZExtValue(it.raw()));
                let bytes = LLVMABISizeOfType(self.data, ty).saturating_mul(count);
                (TypeRef::of(ty), bytes)
            };
            let single = alloca.operands().next().flatten().is_some_and(|count| {
                // SAFETY: the count of a static alloca is a number.
                unsafe { LLVMConstIntGetZExtValue(count.raw()) == 1 }
            });
            let uses = self.examine(alloca);
            if uses.stack {
                self.stacks.push(*alloca);
                continue;
            }
            let kind = match () {
                () if uses.captured || uses.kept || bytes > COPIED_BYTES => Kind::Kept {
                    bytes,
                    alone: !uses.captured,
                },
                () if single && passes_by_value(ty) => Kind::Scalar,
                () => Kind::Bytes(bytes),
            };
            self.allocas.push((*alloca, kind, ty));
        }
        Ok(())
    }

    /// Finds what each function numbers by itself, and is asked for again where it is used.
    pub(super) fn read_type_numbers(&mut self) {
        let instructions = self
            .flow
            .blocks
            .iter()
            .flat_map(|block| block.instructions());
        let asked = instructions.filter(|it| is_intrinsic(*it, |it| it == Meaning::TypeNumber));
        self.derived.extend(asked.map(|it| (*it, *it)));
    }

    /// The variables that may hold what a landing pad chose.
    pub(super) fn choices(&self, places: &FxHashMap<ValueRef<'m>, u32>) -> Vec<u32> {
        let mut held: FxHashSet<ValueRef<'m>> = FxHashSet::default();
        loop {
            let before = held.len();
            let instructions = self
                .flow
                .blocks
                .iter()
                .flat_map(|block| block.instructions());
            for instruction in instructions {
                let mut operands = instruction.operands().flatten();
                match instruction.opcode() {
                    LLVMOpcode::LLVMLandingPad => {
                        held.insert(*instruction);
                    }
                    LLVMOpcode::LLVMStore => {
                        let (value, to) = (operands.next(), operands.next());
                        if let (Some(value), Some(to)) = (value, to)
                            && held.contains(&value)
                        {
                            held.insert(*self.derived.get(&to).unwrap_or(&to));
                        }
                    }
                    // The exception itself is no number of ours.
                    LLVMOpcode::LLVMExtractValue if is_first(instruction) => {}
                    LLVMOpcode::LLVMLoad
                    | LLVMOpcode::LLVMPHI
                    | LLVMOpcode::LLVMSelect
                    | LLVMOpcode::LLVMFreeze
                    | LLVMOpcode::LLVMGetElementPtr
                    | LLVMOpcode::LLVMInsertValue
                    | LLVMOpcode::LLVMExtractValue
                        if operands.any(|it| held.contains(&it)) =>
                    {
                        held.insert(*instruction);
                    }
                    _ => {}
                }
            }
            if held.len() == before {
                break;
            }
        }
        let mut found: Vec<u32> = held
            .iter()
            .filter_map(|it| places.get(it).copied())
            .collect();
        found.sort_unstable();
        found
    }

    /// What becomes of the address of an `alloca`.
    fn examine(&mut self, alloca: InstructionRef<'m>) -> Uses {
        let mut uses = Uses {
            stack: true,
            ..Uses::default()
        };
        let mut made = Vec::new();
        // Pointers made of it, and whether by constants alone.
        let mut work = vec![(alloca, true)];
        while let Some((pointer, constant)) = work.pop() {
            for user in pointer.users() {
                let Some(user) = user.as_instruction() else {
                    uses.captured = true;
                    continue;
                };
                // SAFETY: live instructions.
                let elsewhere = unsafe {
                    LLVMGetInstructionParent(user.raw()) != LLVMGetInstructionParent(pointer.raw())
                };
                uses.captured |= !constant && elsewhere;
                if let Some(fixed) = uses.note(*pointer, user) {
                    if constant && fixed {
                        made.push(*user);
                    }
                    work.push((user, constant && fixed));
                }
            }
        }
        uses.stack &= uses.saves > 0 && !uses.captured && !uses.kept;
        let made = made.into_iter().map(|it| (it, *alloca));
        self.derived.extend(made);
        uses
    }

    /// Arguments that are used, results that are used beyond their block, and phis.
    fn beyond(&self) -> FxHashMap<ValueRef<'m>, ()> {
        let mut beyond: FxHashMap<ValueRef<'m>, ()> = FxHashMap::default();
        for block in &self.flow.blocks {
            for instruction in block.instructions() {
                let is_phi = instruction.opcode() == LLVMOpcode::LLVMPHI;
                if is_phi {
                    beyond.insert(*instruction, ());
                }
                for operand in instruction.operands().flatten() {
                    // SAFETY: a live value.
                    if unsafe { !LLVMIsAArgument(operand.raw()).is_null() } {
                        beyond.insert(operand, ());
                        continue;
                    }
                    let Some(made) = operand.as_instruction() else {
                        continue;
                    };
                    // SAFETY: a live instruction.
                    let from = unsafe { LLVMGetInstructionParent(made.raw()) };
                    if is_phi || from != block.raw() {
                        beyond.insert(operand, ());
                    }
                }
            }
        }
        beyond
    }

    /// The variables: arguments and results that are used beyond their block, phis, `alloca`s.
    pub(super) fn variables(&self, function: FunctionRef<'m>) -> Result<Variables<'m>, Reason> {
        let mut allocas = FxHashMap::default();
        for &(alloca, kind, ty) in &self.allocas {
            allocas.insert(alloca, (kind, ty));
        }
        let beyond = self.beyond();
        let (mut variables, mut places) = (Vec::new(), FxHashMap::default());
        let mut add = |value: ValueRef<'m>, kind, ty| {
            places.insert(value, variables.len() as u32);
            variables.push(Variable { value, kind, ty });
        };
        for argument in parameters(function) {
            if beyond.contains_key(&argument) {
                let (kind, ty) = value_kind(argument)?;
                add(argument, kind, ty);
            }
        }
        for instruction in function.instructions() {
            let value = *instruction;
            if let Some(&(kind, ty)) = allocas.get(&value) {
                add(value, kind, ty);
            } else if beyond.contains_key(&value)
                && !self.derived.contains_key(&value)
                && !self.stacks.contains(&value)
            {
                let (kind, ty) = value_kind(value)?;
                add(value, kind, ty);
            }
        }
        Ok((variables, places))
    }
}

/// True if the first part of a value is extracted.
fn is_first(extract: InstructionRef<'_>) -> bool {
    // SAFETY: an instruction with indices.
    unsafe { LLVMGetNumIndices(extract.raw()) == 1 && *LLVMGetIndices(extract.raw()) == 0 }
}

/// True for an access that is volatile or atomic.
fn is_special(access: InstructionRef<'_>) -> bool {
    // SAFETY: a load or store.
    unsafe {
        LLVMGetVolatile(access.raw()) != 0
            || LLVMGetOrdering(access.raw()) != LLVMAtomicOrdering::LLVMAtomicOrderingNotAtomic
    }
}

/// How a value crosses.
fn value_kind(value: ValueRef<'_>) -> Result<(Kind, TypeRef<'_>), Reason> {
    let raw: LLVMValueRef = value.raw();
    // SAFETY: a live value and its type.
    unsafe {
        let ty = LLVMTypeOf(raw);
        let sized = !matches!(
            LLVMGetTypeKind(ty),
            LLVMTypeKind::LLVMTokenTypeKind
                | LLVMTypeKind::LLVMMetadataTypeKind
                | LLVMTypeKind::LLVMLabelTypeKind
                | LLVMTypeKind::LLVMX86_AMXTypeKind
                | LLVMTypeKind::LLVMTargetExtTypeKind
                | LLVMTypeKind::LLVMVoidTypeKind
        ) && LLVMTypeIsSized(ty) != 0
            && !is_scalable(ty);
        if !sized {
            return Err(Reason::Type);
        }
        let ty = TypeRef::of(ty);
        match passes_by_value(ty) {
            true => Ok((Kind::Value, ty)),
            false => Ok((Kind::Stored, ty)),
        }
    }
}

/// True for types that are passed in the same way whatever the CPU has.
fn passes_by_value(ty: TypeRef<'_>) -> bool {
    // SAFETY: a live type; its width is asked for where it has one.
    unsafe {
        match LLVMGetTypeKind(ty.raw()) {
            LLVMTypeKind::LLVMIntegerTypeKind => {
                matches!(LLVMGetIntTypeWidth(ty.raw()), 1 | 8 | 16 | 32 | 64)
            }
            LLVMTypeKind::LLVMFloatTypeKind
            | LLVMTypeKind::LLVMDoubleTypeKind
            | LLVMTypeKind::LLVMPointerTypeKind => true,
            _ => false,
        }
    }
}

/// # Safety
/// A live type.
unsafe fn is_scalable(ty: LLVMTypeRef) -> bool {
    // SAFETY: by the caller's promise.
    let kind = unsafe { LLVMGetTypeKind(ty) };
    kind == LLVMTypeKind::LLVMScalableVectorTypeKind
}
