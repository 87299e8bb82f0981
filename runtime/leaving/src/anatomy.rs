//! A function body as plain data, in the detail that OSR needs.
//!
//! Values are numbered: parameters first, then all instructions, with or without a result. Any
//! other operand (constant, block, metadata) is [`NONE`].
//!
//! # Invariants
//! Two copies of a body must give equal data, from any reader. Operands have this order: of a store
//! the value, then the address; of a call the arguments, then its bundles' operands, then the
//! callee; of others LLVM's order.

use std::ops::{BitOr, Range};

use crate::meaning::Meaning;

/// Operand that is no value.
pub const NONE: u32 = u32::MAX;

/// The opcode of an instruction. Operations on integers and on floating-point numbers are not
/// distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Code {
    /// No instruction: a debug record.
    Nothing,
    Add,
    Sub,
    Mul,
    UDiv,
    SDiv,
    URem,
    SRem,
    Shl,
    LShr,
    AShr,
    And,
    Or,
    Xor,
    FNeg,
    Trunc,
    ZExt,
    SExt,
    FpToUi,
    FpToSi,
    UiToFp,
    SiToFp,
    FpTrunc,
    FpExt,
    PtrToInt,
    IntToPtr,
    BitCast,
    AddrSpaceCast,
    PtrToAddr,
    GetElementPtr,
    ExtractValue,
    InsertValue,
    Select,
    ExtractElement,
    InsertElement,
    ShuffleVector,
    Compare,
    Phi,
    Alloca,
    Load,
    Store,
    CompareExchange,
    Rmw,
    Fence,
    Call,
    Invoke,
    LandingPad,
    Resume,
    VaArg,
    Freeze,
    Return,
    /// A branch with one or two targets.
    Branch,
    Switch,
    IndirectBranch,
    Unreachable,
    /// `asm goto`, funclets.
    Odd,
}

/// A type that is passed in the same way on every CPU: equal numbers are equal types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Simple(u32);

impl Simple {
    /// `float`.
    pub const FLOAT: Simple = Simple(2);
    /// `double`.
    pub const DOUBLE: Simple = Simple(3);

    /// An integer of `bits` bits; `None` for unusual widths.
    pub fn integer(bits: u32) -> Option<Simple> {
        matches!(bits, 1 | 8 | 16 | 32 | 64).then_some(Simple(bits))
    }

    /// A pointer in an address space.
    pub fn pointer(space: u32) -> Simple {
        // Address spaces have 24 bits.
        Simple(1 << 24 | space & 0xff_ffff)
    }

    /// The form of the type.
    pub fn form(self) -> Form {
        match self {
            Simple::FLOAT => Form::Float,
            Simple::DOUBLE => Form::Double,
            Simple(it) if it >> 24 != 0 => Form::Pointer(it & 0xff_ffff),
            Simple(bits) => Form::Integer(bits),
        }
    }
}

/// The form of a [`Simple`] type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An integer of this many bits.
    Integer(u32),
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// A pointer in an address space.
    Pointer(u32),
}

/// How values of a type cross a loop head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carried {
    /// They cannot cross: their size is unknown.
    Never,
    /// Through memory.
    Stored,
    /// As a scalar argument.
    Whole(Simple),
}

impl Carried {
    /// As a scalar if the type is simple; else through memory.
    pub fn or_stored(simple: Option<Simple>) -> Carried {
        simple.map_or(Carried::Stored, Carried::Whole)
    }

    /// Whether values of the type use all bits of their bytes in memory and cross as scalars: then
    /// memory of the type holds exactly such a value.
    pub(crate) fn fills_its_bytes(self) -> bool {
        match self {
            Carried::Whole(simple) => simple.form() != Form::Integer(1),
            _ => false,
        }
    }
}

/// Further facts about an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts(u8);

impl Facts {
    /// Of a load, a store, or a memory intrinsic: it is volatile, or atomic.
    pub const SPECIAL: Facts = Facts(1);
    /// Of a call: it is `musttail`.
    pub const MUST_TAIL: Facts = Facts(2);
    /// Of a call: an argument is no value (`swifterror`, `inalloca`, `preallocated`).
    pub const PASSES_SPECIALLY: Facts = Facts(4);
    /// Of an extraction: it takes the whole first part.
    pub const FIRST: Facts = Facts(8);
    /// Of an address: all offsets are constant. Set for every cast.
    pub const FIXED: Facts = Facts(16);
    /// The result is one pointer.
    pub const POINTER: Facts = Facts(32);
    /// Of a call: other copies of the body have a multiplication and an addition in its place.
    pub const FUSED: Facts = Facts(64);
    /// Of an `alloca`: its element count is constant.
    pub const COUNTED: Facts = Facts(128);

    /// The empty set.
    pub const fn none() -> Facts {
        Facts(0)
    }

    /// These facts if `so`, else none.
    #[must_use]
    pub fn when(self, so: bool) -> Facts {
        Facts(self.0 * u8::from(so))
    }

    /// Whether all of `facts` are set.
    pub fn has(self, facts: Facts) -> bool {
        self.0 & facts.0 == facts.0
    }
}

impl BitOr for Facts {
    type Output = Facts;

    fn bitor(self, other: Facts) -> Facts {
        Facts(self.0 | other.0)
    }
}

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The opcode.
    pub code: Code,
    /// The meaning of the intrinsic that it calls.
    pub meaning: Meaning,
    /// Further facts.
    pub facts: Facts,
    /// The type of its result; of a store the value's type, of an `alloca` the type of its
    /// contents.
    pub carried: Carried,
    block: u32,
    operands: u32,
    edges: u32,
}

/// A parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) carried: Carried,
    /// Whether it is `noalias`.
    pub(crate) promised: bool,
}

/// An `alloca` of the entry with a constant element count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The number of the instruction.
    pub(crate) instruction: u32,
    /// Bytes of all elements.
    pub(crate) bytes: u64,
    /// Whether it has one element.
    pub(crate) single: bool,
}

/// A body.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Anatomy {
    /// Why OSR is impossible for all loops of the body, if it is.
    pub whole: Option<crate::Reason>,
    /// Whether an `alloca` of the entry holds a scalable vector.
    pub scalable: bool,
    /// Whether an instruction gives a number that is valid in one version only.
    pub(crate) numbers: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) blocks: Vec<Range<u32>>,
    pub(crate) instructions: Vec<Instruction>,
    operands: Vec<u32>,
    /// Source blocks of the operands of phis.
    edges: Vec<u32>,
    pub(crate) rooms: Vec<Room>,
    /// Users of value `i` are `users[starts[i]..starts[i + 1]]`, once for each use.
    starts: Vec<u32>,
    users: Vec<u32>,
    /// By value: used arguments, results used outside of their block, and phis.
    beyond: Vec<bool>,
}

impl Anatomy {
    /// Empties the body; buffers keep their capacity.
    pub fn clear(&mut self) {
        self.whole = None;
        self.numbers = false;
        self.scalable = false;
        self.parameters.clear();
        self.blocks.clear();
        self.instructions.clear();
        self.operands.clear();
        self.edges.clear();
        self.rooms.clear();
    }

    /// Adds a parameter; `promised`: it is `noalias`.
    pub fn add_parameter(&mut self, carried: Carried, promised: bool) {
        self.parameters.push(Parameter { carried, promised });
    }

    /// Begins the next block.
    pub fn begin_block(&mut self) {
        self.end_block();
        let at = self.instructions.len() as u32;
        self.blocks.push(at..at);
    }

    fn end_block(&mut self) {
        let end = self.instructions.len() as u32;
        if let Some(block) = self.blocks.last_mut() {
            block.end = end;
        }
    }

    /// Adds an operand of the next instruction: the number of a value, or [`NONE`].
    #[inline]
    pub fn add_operand(&mut self, value: u32) {
        self.operands.push(value);
    }

    /// Adds an operand of the next instruction, a phi, with its source block.
    #[inline]
    pub fn add_incoming(&mut self, value: u32, block: u32) {
        self.operands.push(value);
        self.edges.push(block);
    }

    /// Adds an instruction, after its operands.
    #[inline]
    pub fn add(&mut self, code: Code, meaning: Meaning, facts: Facts, carried: Carried) {
        self.numbers |= code == Code::LandingPad || meaning == Meaning::TypeNumber;
        self.instructions.push(Instruction {
            code,
            meaning,
            facts,
            carried,
            block: self.blocks.len().saturating_sub(1) as u32,
            operands: self.operands.len() as u32,
            edges: self.edges.len() as u32,
        });
    }

    /// Marks the next instruction as an `alloca` of the entry with a constant element count.
    pub fn add_room(&mut self, bytes: u64, count: u64) {
        self.rooms.push(Room {
            instruction: self.instructions.len() as u32,
            bytes: bytes.saturating_mul(count),
            single: count == 1,
        });
    }

    /// Finds the users. Call it after everything was added.
    pub fn finish(&mut self) {
        self.end_block();
        let values = self.parameters.len() + self.instructions.len();
        self.starts.clear();
        self.starts.resize(values + 2, 0);
        // Counts are two places ahead, so that filling leaves the starts in place.
        for &value in &self.operands {
            if let Some(count) = self.starts.get_mut((value as usize).saturating_add(2)) {
                *count += 1;
            }
        }
        for at in 1..self.starts.len() {
            self.starts[at] += self.starts[at - 1];
        }
        self.users.clear();
        let all = self.starts.last().copied().unwrap_or_default();
        self.users.resize(all as usize, 0);
        self.beyond.clear();
        self.beyond.resize(values, false);
        let parameters = self.parameters.len();
        let mut at = 0;
        for (number, instruction) in (0..).zip(&self.instructions) {
            let end = instruction.operands as usize;
            let is_phi = instruction.code == Code::Phi;
            self.beyond[parameters + number as usize] |= is_phi;
            for &value in &self.operands[at..end] {
                let value = value as usize;
                if value < values {
                    let next = &mut self.starts[value + 1];
                    self.users[*next as usize] = number;
                    *next += 1;
                    let made = value.checked_sub(parameters);
                    let is_here = |it: usize| self.instructions[it].block == instruction.block;
                    self.beyond[value] |= is_phi || !made.is_some_and(is_here);
                }
            }
            at = end;
        }
    }

    /// By value: used arguments, results used outside of their block, and phis.
    pub(crate) fn beyond(&self) -> &[bool] {
        &self.beyond
    }

    /// The number of values.
    pub(crate) fn values(&self) -> usize {
        self.parameters.len() + self.instructions.len()
    }

    /// The value that an instruction defines.
    #[inline]
    pub(crate) fn value(&self, instruction: u32) -> u32 {
        self.parameters.len() as u32 + instruction
    }

    /// The instruction that defines a value; `None` for parameters.
    pub(crate) fn maker(&self, value: u32) -> Option<u32> {
        let own = value.checked_sub(self.parameters.len() as u32)?;
        ((own as usize) < self.instructions.len()).then_some(own)
    }

    #[inline]
    pub(crate) fn at(&self, instruction: u32) -> &Instruction {
        &self.instructions[instruction as usize]
    }

    pub(crate) fn block_of(&self, instruction: u32) -> u32 {
        self.at(instruction).block
    }

    #[inline]
    pub(crate) fn operands_of(&self, instruction: u32) -> &[u32] {
        let own = instruction as usize;
        let start = own.checked_sub(1).map(|it| self.instructions[it].operands);
        let end = self.instructions[own].operands as usize;
        &self.operands[start.unwrap_or_default() as usize..end]
    }

    /// The first operand, if it is a value.
    pub(crate) fn first_of(&self, instruction: u32) -> Option<u32> {
        let first = self.operands_of(instruction).first();
        first.copied().filter(|&it| it != NONE)
    }

    /// The operands of a phi, with their source blocks.
    pub(crate) fn incoming(&self, phi: u32) -> impl Iterator<Item = (u32, u32)> {
        let own = phi as usize;
        let start = own.checked_sub(1).map(|it| self.instructions[it].edges);
        let end = self.instructions[own].edges as usize;
        let edges = &self.edges[start.unwrap_or_default() as usize..end];
        self.operands_of(phi)
            .iter()
            .copied()
            .zip(edges.iter().copied())
    }

    /// The instructions that use a value, once for each use.
    pub(crate) fn users_of(&self, value: u32) -> &[u32] {
        let value = value as usize;
        &self.users[self.starts[value] as usize..self.starts[value + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_once_for_each_use() {
        let mut anatomy = Anatomy::default();
        anatomy.add_parameter(Carried::Whole(Simple::FLOAT), false);
        anatomy.begin_block();
        let add = |anatomy: &mut Anatomy, operands: &[u32]| {
            operands.iter().for_each(|&it| anatomy.add_operand(it));
            anatomy.add(
                Code::Add,
                Meaning::Nothing,
                Facts::none(),
                Carried::Whole(Simple::FLOAT),
            );
        };
        add(&mut anatomy, &[0, 0]);
        add(&mut anatomy, &[1, NONE]);
        add(&mut anatomy, &[0, 2]);
        anatomy.finish();
        assert_eq!(anatomy.users_of(0), [0, 0, 2]);
        assert_eq!(anatomy.users_of(1), [1]);
        assert_eq!(anatomy.users_of(2), [2]);
        assert_eq!(anatomy.users_of(3), [0; 0]);
        assert_eq!(anatomy.operands_of(1), [1, NONE]);
        assert_eq!(anatomy.maker(0), None);
        assert_eq!(anatomy.maker(2), Some(1));
    }
}
