//! What is known of a value: where it lives, how much it is used, how it comes to be.

use crate::ir::Type;

use super::order::NONE;

/// How a value comes to those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// It is made where it is defined, and has a place.
    #[default]
    Placed,
    /// It is in the place of another value, by its number: a cast that changes nothing.
    Same(u32),
    /// It is made in the place of a variable, which is written with it before anybody looks, and
    /// not written again until its last use.
    Made(u32),
    /// It is read from a variable that nobody writes until its last use: it is there.
    Read(u32),
    /// Whoever uses it makes it of its operands.
    Folded,
    /// It is an address in the frame, of an alloca or of so many bytes behind its beginning.
    Frame,
    /// Of an alloca: it is the variable of that number, and nobody needs its address.
    Variable(u32),
    /// Nobody uses it.
    Dead,
}

/// Uses that forbid something; a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

impl Kinds {
    /// As the address of a load or store that is neither volatile nor atomic.
    pub(crate) const ADDRESS: Kinds = Kinds(1);
    /// As the base of an offset that is a constant.
    pub(crate) const BASE: Kinds = Kinds(2);
    /// As the base of another offset.
    pub(crate) const INDEXED: Kinds = Kinds(4);
    /// Anything else.
    pub(crate) const OTHER: Kinds = Kinds(8);
    /// In several blocks, or in phis.
    pub(crate) const SPREAD: Kinds = Kinds(16);
    /// Of an alloca: other than by loads and stores of one type.
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
    /// Uses, those in loops many times.
    pub(crate) weight: u32,
    /// How it comes.
    pub(crate) state: State,
    /// The instruction that makes it, by its place in the function; [`NONE`] for a parameter.
    pub(crate) by: u32,
    /// The place of the block where it is defined.
    pub(crate) block: u32,
    /// Of a load, or what is made for a variable: what `Lives::memory` or the variable's `epoch`
    /// was. Of a variable: how many stores there were.
    pub(crate) epoch: u32,
    /// Of a variable: the number where it was read or written last.
    pub(crate) touched: u32,
    /// A value or variable whose place is welcome.
    pub(crate) hint: u32,
    /// Uses, as far as they were counted.
    pub(crate) uses: u16,
    /// What uses there are.
    pub(crate) kinds: Kinds,
    /// A register that is welcome, by number.
    pub(crate) register: u8,
    /// How many folded values are under it.
    pub(crate) depth: u8,
    /// What it is.
    pub(crate) ty: Type,
    /// The block of the first use that was seen.
    pub(crate) used_in: u32,
}

/// No register.
pub(crate) const NO_REGISTER: u8 = u8::MAX;

impl Life {
    /// Of a value that nothing is known of.
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
