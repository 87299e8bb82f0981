//! What lives across the heads of a body's loops.
//!
//! One backward analysis over blocks, of values and of what `alloca`s hold: a load uses, a store
//! of the whole defines, and markers of lifetimes end what was before and after. But whoever has
//! the address of an `alloca` has it in all its lives: one whose address leaves crosses if it is
//! mentioned on the way to the head, and behind it. It reads a body and changes nothing. Two copies of one body have equal answers, in one order: [`Crossing`]
//! carries a fingerprint by which the two ends of a call are matched.

use std::hash::{Hash, Hasher};

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMCountIncoming, LLVMGetIncomingBlock, LLVMGetIncomingValue, LLVMHasPersonalityFn,
    LLVMIsAConstantInt, LLVMTypeOf,
};
use inkwell::llvm_sys::target::{LLVMGetModuleDataLayout, LLVMTargetDataRef};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;

use super::allocas::Reading;
use super::alone::alone;
use super::reasons::{Meaning, Reason, is_intrinsic};
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
    /// Variables that may hold what a landing pad chose.
    choices: Vec<u32>,
    /// Those that hold a pointer nothing else leads to.
    alone: FxHashSet<ValueRef<'m>>,
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

/// A body that is read: one's copy, or, where it lies in its module, what its copy would be.
#[derive(Clone, Copy)]
pub(crate) struct Body<'a, 'm> {
    pub(crate) function: FunctionRef<'m>,
    /// The layout that sizes are of.
    layout: LLVMTargetDataRef,
    /// Of what the copy has a multiplication and an addition in place of.
    is_fused: &'a dyn Fn(InstructionRef<'m>) -> bool,
}

impl<'a, 'm> Body<'a, 'm> {
    /// A copy, in a module for the target.
    pub(crate) fn copied(module: &OwnedModule, function: FunctionRef<'m>) -> Body<'a, 'm> {
        Body {
            function,
            // SAFETY: a live module, which owns the layout.
            layout: unsafe { LLVMGetModuleDataLayout(module.raw()) },
            is_fused: &|_| false,
        }
    }

    /// The original.
    ///
    /// # Safety
    /// The layout lives as long as this.
    pub(crate) unsafe fn in_place(
        function: FunctionRef<'m>,
        layout: LLVMTargetDataRef,
        is_fused: &'a dyn Fn(InstructionRef<'m>) -> bool,
    ) -> Body<'a, 'm> {
        Body {
            function,
            layout,
            is_fused,
        }
    }
}

impl<'m> Frame<'m> {
    /// Of a body whose loops are in `flow`.
    ///
    /// # Errors
    /// Why no head of it can be left.
    pub(crate) fn of(body: Body<'_, 'm>, flow: &Flow<'m>) -> Result<Frame<'m>, Reason> {
        let function = body.function;
        let numbers = flow.blocks.iter().zip(0..);
        let numbers = numbers.map(|(block, index)| (block.raw() as usize, index));
        let mut reading = Reading {
            flow,
            data: body.layout,
            numbers: numbers.collect(),
            allocas: Vec::new(),
            stacks: Vec::new(),
            derived: FxHashMap::default(),
        };
        reading.read_allocas()?;
        // SAFETY: a live function.
        let catches = unsafe { LLVMHasPersonalityFn(function.raw()) } != 0;
        if catches {
            reading.read_type_numbers();
        }
        let (variables, places) = reading.variables(function)?;
        let words = variables.len().div_ceil(64);
        if words * 64 * flow.blocks.len() > MOST_BITS {
            return Err(Reason::TooLarge);
        }
        let mut frame = Frame {
            choices: match catches {
                true => reading.choices(&places),
                false => Vec::new(),
            },
            alone: alone(function, &variables),
            variables,
            places,
            words,
            live: Vec::new(),
            fingerprint: 0,
            derived: reading.derived.clone(),
            stacks: reading.stacks.clone(),
        };
        frame.live = frame.solve(&reading);
        frame.fingerprint = frame.sign(body);
        Ok(frame)
    }

    /// What crosses at the head `block`.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn crossing(&self, block: u32) -> Result<Crossing, Reason> {
        let at = block as usize * self.words;
        let row = &self.live[at..at + self.words];
        let is_live = |&it: &u32| row[it as usize / 64] >> (it % 64) & 1 != 0;
        let variables: Vec<u32> = (0..self.variables.len() as u32).filter(is_live).collect();
        if variables.iter().any(|it| self.choices.contains(it)) {
            return Err(Reason::Exception);
        }
        let mut hasher = FxHasher::default();
        (self.fingerprint, block, &variables).hash(&mut hasher);
        Ok(Crossing {
            variables,
            fingerprint: hasher.finish(),
        })
    }

    pub(crate) fn place(&self, value: ValueRef<'m>) -> Option<u32> {
        self.places.get(&value).copied()
    }

    /// What a pointer is made of, if it is made of an `alloca` and constants only.
    pub(crate) fn is_derived(&self, value: ValueRef<'m>) -> bool {
        self.derived.contains_key(&value)
    }

    /// True for a variable that holds a pointer nothing else leads to.
    pub(crate) fn is_alone(&self, value: ValueRef<'m>) -> bool {
        self.alone.contains(&value)
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
    fn sign(&self, body: Body<'_, 'm>) -> u64 {
        let mut hasher = FxHasher::default();
        for block in body.function.blocks() {
            for instruction in block.instructions() {
                let mut opcode = instruction.opcode();
                if opcode == LLVMOpcode::LLVMCall && (body.is_fused)(instruction) {
                    (LLVMOpcode::LLVMFMul as u32).hash(&mut hasher);
                    // The product is used in its block only.
                    None::<Kind>.hash(&mut hasher);
                    opcode = LLVMOpcode::LLVMFAdd;
                }
                (opcode as u32).hash(&mut hasher);
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
        let mut mentioned = sets();
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
                            mentioned.put(from, it);
                        }
                    }
                    continue;
                }
                self.events(instruction, |it, defines| match defines {
                    true => defined.put(index, it),
                    false => {
                        mentioned.put(index, it);
                        if !defined.has(index, it) {
                            used.put(index, it);
                        }
                    }
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
                break;
            }
        }
        self.leave_out_unmet(flow, &mentioned, &mut live);
        live.rows
    }

    /// Leaves out what nobody on the way to a block can have the address of.
    fn leave_out_unmet(&self, flow: &Flow<'m>, mentioned: &Sets, live: &mut Sets) {
        let mut leaving = vec![0u64; self.words];
        for at in (0..self.variables.len()).filter(|&it| self.leaves(it as u32)) {
            leaving[at / 64] |= 1 << (at % 64);
        }
        if leaving.iter().all(|&word| word == 0) {
            return;
        }
        let blocks = flow.blocks.len();
        let mut met = Sets::new(self.words, blocks);
        let mut behind = vec![0u64; self.words];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for index in 0..blocks as u32 {
                let rows = met.row(index).iter().zip(mentioned.row(index));
                for (word, (met, mentioned)) in behind.iter_mut().zip(rows) {
                    *word = met | mentioned;
                }
                for &next in flow.graph.successors(index) {
                    for (met, word) in met.row_mut(next).iter_mut().zip(&behind) {
                        changed |= *word & !*met != 0;
                        *met |= word;
                    }
                }
            }
        }
        let rows = live.rows.iter_mut().zip(&met.rows);
        for ((live, met), leaving) in rows.zip(leaving.iter().cycle()) {
            *live &= met | !leaving;
        }
    }

    /// True for an `alloca` whose address others may have.
    fn leaves(&self, variable: u32) -> bool {
        let kind = self.variables[variable as usize].kind;
        matches!(kind, Kind::Kept { alone: false, .. })
    }

    /// The variable that an operand is, or is made of.
    fn mentioned(&self, operand: ValueRef<'m>) -> Option<u32> {
        // Most bodies make no such pointers.
        let root = match self.derived.is_empty() {
            true => operand,
            false => *self.derived.get(&operand).unwrap_or(&operand),
        };
        self.place(root)
    }

    /// Tells of each variable that an instruction, no phi, mentions whether it is given a value
    /// as a whole. Uses come first. A marker of what has left is nothing.
    fn events(&self, instruction: InstructionRef<'m>, mut each: impl FnMut(u32, bool)) {
        let operands: SmallVec<[Option<ValueRef<'m>>; 8]> = instruction.operands().collect();
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
        let is_marker = is_intrinsic(instruction, Meaning::is_marker);
        for operand in operands.into_iter().flatten() {
            match self.mentioned(operand) {
                Some(place) if is_marker && self.leaves(place) => {}
                Some(place) => each(place, is_marker),
                None => {}
            }
        }
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
pub(crate) fn incoming<'m>(phi: InstructionRef<'m>) -> impl Iterator<Item = (ValueRef<'m>, usize)> {
    // SAFETY: a live phi, and indices below its count.
    let count = unsafe { LLVMCountIncoming(phi.raw()) };
    (0..count).map(move |index| {
        // SAFETY: as above.
        unsafe {
            let value = ValueRef::of(LLVMGetIncomingValue(phi.raw(), index));
            (value, LLVMGetIncomingBlock(phi.raw(), index) as usize)
        }
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
