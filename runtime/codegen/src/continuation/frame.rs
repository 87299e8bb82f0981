//! What lives across the heads of a body's loops.
//!
//! One backward analysis over blocks, of values and of what `alloca`s hold: a load uses, a store
//! of the whole defines, and markers of lifetimes end what was before and after. It reads a body
//! and changes nothing. Two copies of one body have equal answers, in one order: [`Crossing`]
//! carries a fingerprint by which the two ends of a call are matched.

use std::hash::{Hash, Hasher};

use inkwell::llvm_sys::core::{
    LLVMGetAllocatedType, LLVMGetIncomingBlock, LLVMGetIncomingValue, LLVMCountIncoming,
    LLVMGetInstructionParent, LLVMGetIntTypeWidth, LLVMGetTypeKind,
    LLVMGetVolatile, LLVMConstIntGetZExtValue, LLVMIsAArgument, LLVMIsAConstantInt, LLVMIsConstant,
    LLVMTypeIsSized, LLVMTypeOf, LLVMGetOrdering,
};
use inkwell::llvm_sys::prelude::{LLVMTypeRef, LLVMValueRef};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMTargetDataRef};
use inkwell::llvm_sys::{LLVMAtomicOrdering, LLVMOpcode, LLVMTypeKind};
use rustc_hash::{FxHashMap, FxHasher};

use super::reasons::{Reason, is_intrinsic};
use crate::context::OwnedModule;
use crate::flow::Flow;
use crate::handles::{FunctionRef, InstructionRef, TypeRef, ValueRef};

/// Larger `alloca`s stay where they are.
pub(crate) const COPIED_BYTES: u64 = 512;

/// Bits of one analysis: values times blocks.
const MOST_BITS: usize = 32 << 20;

/// How something crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// An argument or the result of an instruction.
    Value,
    /// The same, through memory.
    Stored,
    /// What an `alloca` holds.
    Scalar,
    /// The same, of so many bytes, by the address it has.
    Bytes(u64),
    /// An `alloca` that stays, of so many bytes; whether nothing else can point to it.
    Kept { bytes: u64, alone: bool },
}

/// Something that may live across heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable<'m> {
    /// The argument, instruction or `alloca`.
    pub(crate) value: ValueRef<'m>,
    pub(crate) kind: Kind,
    /// Of the value, or of what the `alloca` holds.
    pub(crate) ty: TypeRef<'m>,
}

/// The variables of a body, and where each lives.
pub(crate) struct Frame<'m> {
    pub(crate) variables: Vec<Variable<'m>>,
    places: FxHashMap<ValueRef<'m>, u32>,
    /// Pointers that are made of an `alloca` and constants, which are made anew where they are
    /// used.
    derived: FxHashMap<ValueRef<'m>, ValueRef<'m>>,
    /// `alloca`s of saved stack pointers.
    stacks: Vec<ValueRef<'m>>,
    words: usize,
    /// What lives behind the phis of each block.
    live: Vec<u64>,
    fingerprint: u64,
}

/// What crosses at one head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    /// Places among the variables.
    pub(crate) variables: Vec<u32>,
    /// Equal for equal bodies, heads and variables.
    pub(crate) fingerprint: u64,
}

/// What is found out about one `alloca` by its uses.
#[derive(Default)]
struct Uses {
    captured: bool,
    kept: bool,
    /// It holds nothing but saved stack pointers, for nothing but going back to them.
    stack: bool,
}

/// The sets of one block, as rows of words.
struct Sets {
    words: usize,
    rows: Vec<u64>,
}

impl Sets {
    fn new(words: usize, blocks: usize) -> Sets {
        let rows = vec![0; words * blocks];
        Sets { words, rows }
    }

    fn row(&self, block: u32) -> &[u64] {
        let at = block as usize * self.words;
        &self.rows[at..at + self.words]
    }

    fn row_mut(&mut self, block: u32) -> &mut [u64] {
        let at = block as usize * self.words;
        &mut self.rows[at..at + self.words]
    }

    fn put(&mut self, block: u32, variable: u32) {
        self.row_mut(block)[variable as usize / 64] |= 1 << (variable % 64);
    }

    fn has(&self, block: u32, variable: u32) -> bool {
        self.row(block)[variable as usize / 64] >> (variable % 64) & 1 != 0
    }
}

/// What an analysis begins with.
struct Reading<'a, 'm> {
    flow: &'a Flow<'m>,
    data: LLVMTargetDataRef,
    numbers: FxHashMap<usize, u32>,
    /// Static `alloca`s, in order.
    allocas: Vec<(ValueRef<'m>, Kind, TypeRef<'m>)>,
    stacks: Vec<ValueRef<'m>>,
    derived: FxHashMap<ValueRef<'m>, ValueRef<'m>>,
}

impl<'m> Frame<'m> {
    /// Of a body whose loops are in `flow`.
    ///
    /// # Errors
    /// Why no head of it can be left.
    pub(crate) fn of(
        module: &OwnedModule,
        function: FunctionRef<'m>,
        flow: &Flow<'m>,
    ) -> Result<Frame<'m>, Reason> {
        let numbers = flow.blocks.iter().zip(0..);
        let numbers = numbers.map(|(block, index)| (block.raw() as usize, index));
        let mut reading = Reading {
            flow,
            // SAFETY: a live module, which owns the layout.
            data: unsafe { LLVMGetModuleDataLayout(module.raw()) },
            numbers: numbers.collect(),
            allocas: Vec::new(),
            stacks: Vec::new(),
            derived: FxHashMap::default(),
        };
        reading.read_allocas()?;
        let (variables, places) = reading.variables(function)?;
        let words = variables.len().div_ceil(64);
        if words * 64 * flow.blocks.len() > MOST_BITS {
            return Err(Reason::TooLarge);
        }
        let mut frame = Frame {
            variables,
            places,
            words,
            live: Vec::new(),
            fingerprint: 0,
            derived: reading.derived.clone(),
            stacks: reading.stacks.clone(),
        };
        frame.live = frame.solve(&reading);
        frame.fingerprint = frame.sign(function);
        Ok(frame)
    }

    /// What crosses at the head `block`.
    pub(crate) fn crossing(&self, block: u32) -> Crossing {
        let at = block as usize * self.words;
        let row = &self.live[at..at + self.words];
        let is_live = |&it: &u32| row[it as usize / 64] >> (it % 64) & 1 != 0;
        let variables: Vec<u32> = (0..self.variables.len() as u32).filter(is_live).collect();
        let mut hasher = FxHasher::default();
        (self.fingerprint, block, &variables).hash(&mut hasher);
        Crossing {
            variables,
            fingerprint: hasher.finish(),
        }
    }

    pub(crate) fn place(&self, value: ValueRef<'m>) -> Option<u32> {
        self.places.get(&value).copied()
    }

    /// What a pointer is made of, if it is made of an `alloca` and constants only.
    pub(crate) fn is_derived(&self, value: ValueRef<'m>) -> bool {
        self.derived.contains_key(&value)
    }

    /// True for an `alloca` that holds saved stack pointers.
    pub(crate) fn is_stack(&self, value: ValueRef<'m>) -> bool {
        self.stacks.contains(&value)
    }

    /// True for what is given its value where it stands, and is no `alloca` of the frame.
    pub(crate) fn is_value(&self, variable: u32) -> bool {
        let kind = self.variables[variable as usize].kind;
        matches!(kind, Kind::Value | Kind::Stored)
    }

    /// What stands for the body and its variables, and is equal in another copy.
    fn sign(&self, function: FunctionRef<'m>) -> u64 {
        let mut hasher = FxHasher::default();
        for block in function.blocks() {
            for instruction in block.instructions() {
                (instruction.opcode() as u32).hash(&mut hasher);
                let place = self.place(*instruction);
                place
                    .map(|at| self.variables[at as usize].kind)
                    .hash(&mut hasher);
            }
            0xff_u8.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// What lives behind the phis of each block.
    fn solve(&self, reading: &Reading<'_, 'm>) -> Vec<u64> {
        let flow = reading.flow;
        let blocks = flow.blocks.len();
        let sets = || Sets::new(self.words, blocks);
        let (mut used, mut defined, mut phis, mut at_end) = (sets(), sets(), sets(), sets());
        for (block, index) in flow.blocks.iter().zip(0u32..) {
            for instruction in block.instructions() {
                let place = self.place(*instruction).filter(|it| self.is_value(*it));
                if instruction.opcode() == LLVMOpcode::LLVMPHI {
                    place.inspect(|&it| phis.put(index, it));
                    for (value, from) in incoming(instruction) {
                        if let (Some(it), Some(&from)) =
                            (self.mentioned(value), reading.numbers.get(&from))
                        {
                            at_end.put(from, it);
                        }
                    }
                    continue;
                }
                self.events(instruction, |it, defines| match defines {
                    true => defined.put(index, it),
                    false if !defined.has(index, it) => used.put(index, it),
                    false => {}
                });
                place.inspect(|&it| defined.put(index, it));
            }
        }
        let mut live = sets();
        let mut before = vec![0u64; self.words];
        loop {
            let mut changed = false;
            for index in (0..blocks as u32).rev() {
                before.copy_from_slice(at_end.row(index));
                for &next in flow.graph.successors(index) {
                    let rows = live.row(next).iter().zip(phis.row(next));
                    for (word, (live, phis)) in before.iter_mut().zip(rows) {
                        *word |= live & !phis;
                    }
                }
                let rows = used.row(index).iter().zip(defined.row(index));
                for (word, (used, defined)) in before.iter_mut().zip(rows) {
                    *word = used | (*word & !defined);
                }
                let row = live.row_mut(index);
                changed |= row != &before[..];
                row.copy_from_slice(&before);
            }
            if !changed {
                return live.rows;
            }
        }
    }

    /// The variable that an operand is, or is made of.
    fn mentioned(&self, operand: ValueRef<'m>) -> Option<u32> {
        let root = self.derived.get(&operand).unwrap_or(&operand);
        self.place(*root)
    }

    /// Tells of each variable that an instruction, no phi, mentions whether it is given a value
    /// as a whole. Uses come first.
    fn events(&self, instruction: InstructionRef<'m>, mut each: impl FnMut(u32, bool)) {
        let operands: Vec<Option<ValueRef<'m>>> = instruction.operands().collect();
        if instruction.opcode() == LLVMOpcode::LLVMStore
            && let [Some(value), Some(to)] = operands[..]
            && let Some(place) = self.place(to)
            && self.variables[place as usize].kind == Kind::Scalar
            // SAFETY: a live value has a type.
            && unsafe { LLVMTypeOf(value.raw()) } == self.variables[place as usize].ty.raw()
        {
            self.mentioned(value).inspect(|&it| each(it, false));
            return each(place, true);
        }
        let is_marker = is_intrinsic(instruction, |it| it.lifetime_start || it.lifetime_end);
        for operand in operands.into_iter().flatten() {
            if let Some(place) = self.mentioned(operand) {
                each(place, is_marker);
            }
        }
    }
}

impl<'m> Reading<'_, 'm> {
    /// Finds the static `alloca`s and how each would cross.
    fn read_allocas(&mut self) -> Result<(), Reason> {
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
            let uses = self.examine(alloca)?;
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

    /// What becomes of the address of an `alloca`.
    fn examine(&mut self, alloca: InstructionRef<'m>) -> Result<Uses, Reason> {
        let mut uses = Uses {
            stack: true,
            ..Uses::default()
        };
        let (mut saves, mut made) = (0, Vec::new());
        // Pointers made of it, and whether by constants alone.
        let mut work = vec![(alloca, true)];
        while let Some((pointer, constant)) = work.pop() {
            for user in pointer.users() {
                let Some(user) = user.as_instruction() else {
                    uses.captured = true;
                    continue;
                };
                if !constant && user.opcode() != LLVMOpcode::LLVMPHI {
                    // SAFETY: live instructions.
                    uses.captured |= unsafe {
                        LLVMGetInstructionParent(user.raw())
                            != LLVMGetInstructionParent(pointer.raw())
                    };
                }
                match user.opcode() {
                    LLVMOpcode::LLVMLoad => {
                        uses.kept |= is_special(user);
                        uses.stack &= user.users().all(|it| {
                            let it = it.as_instruction();
                            it.is_some_and(|it| is_intrinsic(it, |it| it.stack_restore))
                        });
                    }
                    LLVMOpcode::LLVMStore => {
                        uses.kept |= is_special(user);
                        let value = user.operands().next().flatten();
                        uses.captured |= value == Some(*pointer);
                        let saved = value.and_then(ValueRef::as_instruction);
                        let is_save = saved.is_some_and(|it| is_intrinsic(it, |it| it.stack_save));
                        uses.stack &= is_save;
                        saves += u32::from(is_save);
                    }
                    LLVMOpcode::LLVMGetElementPtr | LLVMOpcode::LLVMBitCast => {
                        uses.stack = false;
                        let mut operands = user.operands().flatten();
                        let base = operands.next();
                        // SAFETY: a live operand.
                        let fixed = operands.all(|it| unsafe { LLVMIsConstant(it.raw()) != 0 });
                        // SAFETY: a live instruction has a type.
                        let ty = unsafe { LLVMGetTypeKind(LLVMTypeOf(user.raw())) };
                        if base != Some(*pointer) || ty != LLVMTypeKind::LLVMPointerTypeKind {
                            uses.captured = true;
                            continue;
                        }
                        if constant && fixed {
                            made.push(*user);
                        }
                        work.push((user, constant && fixed));
                    }
                    _ if is_intrinsic(user, |it| it.lifetime_start || it.lifetime_end) => {}
                    _ if is_intrinsic(user, |it| it.memory) => {
                        uses.stack = false;
                        let volatile = user.operands().nth(3).flatten();
                        // SAFETY: the flag is a constant number.
                        uses.kept |= volatile
                            .is_none_or(|it| unsafe { LLVMConstIntGetZExtValue(it.raw()) != 0 });
                    }
                    _ => {
                        uses.stack = false;
                        uses.captured = true;
                    }
                }
            }
        }
        uses.stack &= saves > 0 && !uses.captured && !uses.kept;
        self.derived.extend(made.into_iter().map(|it| (it, *alloca)));
        Ok(uses)
    }

    /// The variables: arguments and results that are used beyond their block, phis, `alloca`s.
    #[allow(clippy::type_complexity)]
    fn variables(
        &self,
        function: FunctionRef<'m>,
    ) -> Result<(Vec<Variable<'m>>, FxHashMap<ValueRef<'m>, u32>), Reason> {
        let mut allocas = FxHashMap::default();
        for &(alloca, kind, ty) in &self.allocas {
            allocas.insert(alloca, (kind, ty));
        }
        let mut beyond: FxHashMap<ValueRef<'m>, ()> = FxHashMap::default();
        for (block, index) in self.flow.blocks.iter().zip(0u32..) {
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
                    let from = unsafe { LLVMGetInstructionParent(made.raw()) } as usize;
                    if is_phi || self.numbers.get(&from) != Some(&index) {
                        beyond.insert(operand, ());
                    }
                }
            }
        }
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

/// The parameters of a function.
pub(crate) fn parameters(function: FunctionRef<'_>) -> Vec<ValueRef<'_>> {
    use inkwell::llvm_sys::core::{LLVMCountParams, LLVMGetParam};
    // SAFETY: a live function, and indices below the count.
    unsafe {
        let count = LLVMCountParams(function.raw());
        (0..count)
            .map(|index| ValueRef::of(LLVMGetParam(function.raw(), index)))
            .collect()
    }
}

/// The values of a phi, and the blocks they come from, as numbers.
pub(crate) fn incoming<'m>(
    phi: InstructionRef<'m>,
) -> impl Iterator<Item = (ValueRef<'m>, usize)> {
    // SAFETY: a live phi, and indices below its count.
    let count = unsafe { LLVMCountIncoming(phi.raw()) };
    (0..count).map(move |index| unsafe {
        let value = ValueRef::of(LLVMGetIncomingValue(phi.raw(), index));
        (value, LLVMGetIncomingBlock(phi.raw(), index) as usize)
    })
}

/// True for an `alloca` of a number that is known; to be asked of those in the entry block.
pub(crate) fn is_static(instruction: InstructionRef<'_>) -> bool {
    instruction.opcode() == LLVMOpcode::LLVMAlloca
        && instruction.operands().next().flatten().is_some_and(|it| {
            // SAFETY: a live value.
            unsafe { !LLVMIsAConstantInt(it.raw()).is_null() }
        })
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
