//! Properties of a symbol (`Flags`) and its state of production (`SymbolState`).

use std::fmt;
use std::ops::BitOr;

/// Properties of a symbol. Neither weak nor common means strong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// Hidden, strong data.
    pub const NONE: Flags = Flags(0);
    /// Gives way to a strong definition until it was first searched for.
    pub const WEAK: Flags = Flags(1);
    /// A tentative definition; gives way like a weak one.
    pub const COMMON: Flags = Flags(2);
    /// Visible to lookups that ask for exported symbols only.
    pub const EXPORTED: Flags = Flags(4);
    /// A function.
    pub const CALLABLE: Flags = Flags(8);
    /// A fixed number instead of an address in memory.
    pub const ABSOLUTE: Flags = Flags(16);
    /// Has no address: stands for the effect of materializing. Must be looked up as weakly
    /// referenced; removed once ready.
    pub const SIDE_EFFECTS_ONLY: Flags = Flags(32);

    const ALL: [(Flags, &'static str); 6] = [
        (Flags::WEAK, "weak"),
        (Flags::COMMON, "common"),
        (Flags::EXPORTED, "exported"),
        (Flags::CALLABLE, "callable"),
        (Flags::ABSOLUTE, "absolute"),
        (Flags::SIDE_EFFECTS_ONLY, "side effects only"),
    ];

    /// Whether all of `other` is set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These flags without `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Neither weak nor common.
    #[inline]
    pub const fn is_strong(self) -> bool {
        self.0 & (Flags::WEAK.0 | Flags::COMMON.0) == 0
    }

    /// Whether lookups of exported symbols only can see it.
    #[inline]
    pub const fn is_exported(self) -> bool {
        self.contains(Flags::EXPORTED)
    }

    /// The bits, stable within one build of this package.
    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Flags {
        Flags(bits)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_set();
        for (flag, name) in Flags::ALL {
            if self.contains(flag) {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}

/// The state of a symbol's production. The order is that of its life; `Failed` is apart and last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SymbolState {
    /// Defined by a unit that was not materialized yet.
    NeverSearched,
    /// A responsibility is producing it.
    Materializing,
    /// Has its address; its memory must not be accessed yet.
    Resolved,
    /// In memory; waits for its dependences.
    Emitted,
    /// It and all its dependences are in memory.
    Ready,
    /// Its materialization, or that of a dependence, failed.
    Failed,
}
