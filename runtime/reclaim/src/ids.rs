//! Numbers and units: blocks, functions, versions, threads, spans and times.
//!
//! The runtime assigns the numbers; this package makes none, except in [`crate::Slots`].

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

pub use uruk_base::{FunctionId, Nanos, VersionId};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty) $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub struct $name(pub $inner);

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, concat!($prefix, "{}"), self.0)
                }
            }
        )*
    };
}

ids! {
    /// One allocation of code memory. Never reused; a copy of a block is another block.
    /// Blocks that exist at one time differ in their low 27 bits ([`crate::Slots`]).
    BlockId(u64) "b";
    /// A thread, by its kernel id.
    ThreadId(i32) "t";
}

/// Hashes one number by multiplication (Knuth's golden ratio) and a fold of the high half: the
/// numbers are the runtime's, so deliberate collisions are impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// A table by number. Its order of iteration is unspecified.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Capacity that a table may always keep.
const ROOM: usize = 1 << 10;

/// Shrinks a table that is nearly empty. To be called after each removal: it moves the remaining
/// entries once in as many removals.
pub fn shrink<K: Eq + Hash, V>(table: &mut IdMap<K, V>) {
    if table.capacity() > ROOM && table.len() < table.capacity() / 8 {
        table.shrink_to((2 * table.len()).max(ROOM / 2));
    }
}

/// Addresses `start..end` of one block, `start < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

impl Span {
    /// Its length in bytes; zero if the end is before the start.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether a word found on a stack pins the block: `start <= word <= end`. The end counts,
    /// because it is the return address of a call that is the last instruction.
    pub fn is_pinned_by(self, word: u64) -> bool {
        self.start <= word && word <= self.end
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

/// One of the two halves of code memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// The first.
    A,
    /// The second.
    B,
}

impl Space {
    /// The other space.
    pub fn other(self) -> Space {
        match self {
            Space::A => Space::B,
            Space::B => Space::A,
        }
    }
}
