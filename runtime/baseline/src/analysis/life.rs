//! Facts about a value: its live range, its uses, and how it is computed.

use crate::ir::Type;

use super::order::NONE;

/// How a value reaches its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// It is computed where it is defined, and has a place.
    #[default]
    Placed,
    /// It shares the place of another value, by its number: a cast that changes nothing.
    Same(u32),
    /// It is computed in the place of a variable. The store to the variable follows before any
    /// read, and no other store until the last use of the value.
    Made(u32),
    /// It is a load of a variable that is not written until the last use: the variable's place is
    /// read.
    Read(u32),
    /// Each user computes it from its operands.
    Folded,
    /// It is an address in the frame: an alloca, or a constant offset from its start.
    Frame,
    /// Of an alloca: it is the variable of that number, and its address is not used.
    Variable(u32),
    /// It has no uses.
    Dead,
}

/// Uses that rule out optimizations; a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

impl Kinds {
    /// Use as the address of a load or store that is neither volatile nor atomic.
    pub(crate) const ADDRESS: Kinds = Kinds(1);
    /// Use as the base of an offset that is a constant.
    pub(crate) const BASE: Kinds = Kinds(2);
    /// Use as the base of another offset.
    pub(crate) const INDEXED: Kinds = Kinds(4);
    /// Any other use.
    pub(crate) const OTHER: Kinds = Kinds(8);
    /// Uses in several blocks, or in phis.
    pub(crate) const SPREAD: Kinds = Kinds(16);
    /// Of an alloca: a use other than a load or store of one type.
    pub(crate) const ESCAPES: Kinds = Kinds(32);

    /// Adds some.
    pub(crate) fn add(&mut self, kinds: Kinds) {
        self.0 |= kinds.0;
    }

    /// Whether some of these are there.
    pub(crate) fn has(self, kinds: Kinds) -> bool {
        self.0 & kinds.0 != 0
    }
}

impl std::ops::BitOr for Kinds {
    type Output = Kinds;

    fn bitor(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

/// A value, or a variable that an alloca became.
///
/// Numbers are those of instructions ([`super::order::Order::start`]). Of an instruction, operands
/// are read before results are written: what is read for the last time where something else is
/// written may have its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    /// The number where it is written first.
    pub(crate) from: u32,
    /// The number where it is read last; greater than `from`.
    pub(crate) to: u32,
    /// Number of uses; uses in loops count many times.
    pub(crate) weight: u32,
    /// How the value reaches its users.
    pub(crate) state: State,
    /// The instruction that defines it, by its index in the function; [`NONE`] for a parameter.
    pub(crate) by: u32,
    /// The place of the block where it is defined.
    pub(crate) block: u32,
    /// Of a load, or of a value made for a variable: `Lives::memory` or the variable's `epoch` at
    /// that time. Of a variable: the number of stores so far.
    pub(crate) epoch: u32,
    /// Of a variable: the number where it was read or written last.
    pub(crate) touched: u32,
    /// A value or variable whose place is preferred.
    pub(crate) hint: u32,
    /// Number of uses; the count saturates.
    pub(crate) uses: u16,
    /// The kinds of uses.
    pub(crate) kinds: Kinds,
    /// The preferred register, by number.
    pub(crate) register: u8,
    /// Levels of folded values below it.
    pub(crate) depth: u8,
    /// The type.
    pub(crate) ty: Type,
    /// The block of the first use that was seen.
    pub(crate) used_in: u32,
}

/// No register.
pub(crate) const NO_REGISTER: u8 = u8::MAX;

impl Life {
    /// The record of a value before analysis.
    pub(crate) fn new(ty: Type) -> Life {
        Life {
            from: 0,
            to: 0,
            weight: 0,
            state: State::Placed,
            by: NONE,
            block: 0,
            epoch: 0,
            touched: 0,
            hint: NONE,
            uses: 0,
            kinds: Kinds::default(),
            register: NO_REGISTER,
            depth: 0,
            ty,
            used_in: NONE,
        }
    }
}
