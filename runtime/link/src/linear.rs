//! Numbers that carry their dependence on the address of the code segment.
//!
//! All values of a link are linear in the address `C` of the code segment:
//! `value(C + d) = value(C) + slope * d` modulo 2^64. Addresses in the code
//! segment have slope 1, all others 0; sums and differences of values are sums
//! and differences of slopes. So each expression of `relocation.rs`, computed
//! with such numbers, also gives the change of its field when the code moves.

/// A value, and its slope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Linear {
    pub(crate) value: u64,
    pub(crate) slope: i8,
}

impl Linear {
    /// A value that does not change when the code moves.
    pub(crate) fn fixed(value: u64) -> Linear {
        Linear { value, slope: 0 }
    }

    pub(crate) fn plus(self, offset: u64) -> Linear {
        Linear {
            value: self.value.wrapping_add(offset),
            ..self
        }
    }

    pub(crate) fn minus(self, other: Linear) -> Linear {
        Linear {
            value: self.value.wrapping_sub(other.value),
            slope: self.slope - other.slope,
        }
    }
}
