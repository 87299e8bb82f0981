//! The lock-free half of a dylib's symbol table: one word per symbol.
//!
//! A word says whether the dylib defines the symbol, and once it is ready, its address. A lookup
//! that finds all its symbols ready takes no lock of the session.
//!
//! Word: bit 63 defined, bit 62 ready, bits 57 to 61 the flags exported,
//! callable, weak, common, absolute; bits 0 to 56 the address. 57 bits hold every
//! user address of x86-64 and AArch64, with five-level page tables too. An
//! absolute symbol with a wider value is never marked ready here; the slow path
//! finds it in the symbol table.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | leaf words | holders of the session's lock | every change of a symbol | release; pairs with the acquire load in `get`: a thread that reads a ready address also sees the code that was written before it was published |
//! | leaves, directory | holders of the session's lock | once | `OnceLock` |

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::chunked::Chunked;
use crate::flags::Flags;
use crate::symbol::Symbol;
use crate::sync::AtomicU64;

/// Words in a leaf: 2 KiB.
const LEAF: u32 = 256;

const DEFINED: u64 = 1 << 63;
const READY: u64 = 1 << 62;
const FLAG_SHIFT: u32 = 57;
const ADDRESS: u64 = (1 << FLAG_SHIFT) - 1;
/// The five flags that a word holds.
const KEPT: u8 = Flags::WEAK.bits()
    | Flags::COMMON.bits()
    | Flags::EXPORTED.bits()
    | Flags::CALLABLE.bits()
    | Flags::ABSOLUTE.bits();
const _: () = assert!(KEPT == 31);

type Leaf = OnceLock<Box<[AtomicU64]>>;

/// A dylib's entry for a symbol, as far as it is known without the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// Not defined here (a generator may still define it).
    Undefined,
    /// Defined and not ready; the session knows more.
    Defined(Flags),
    /// Ready at this address.
    At(u64, Flags),
}

/// The place of a symbol's word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    chunk: usize,
    leaf: usize,
    word: usize,
}

/// See the module text.
#[derive(Debug)]
pub struct ReadyTable {
    leaves: Chunked<Leaf, 2>,
}

impl Default for ReadyTable {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadyTable {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            leaves: Chunked::new(),
        }
    }

    /// The place of a symbol's word, the same in every table.
    #[inline]
    pub(crate) fn spot(symbol: Symbol) -> Spot {
        let id = symbol.id();
        let (chunk, leaf) = Chunked::<Leaf, 2>::place(id / LEAF);
        Spot {
            chunk,
            leaf,
            word: (id % LEAF) as usize,
        }
    }

    #[inline]
    fn word_at(&self, spot: &Spot) -> u64 {
        let leaf = self.leaves.at(spot.chunk, spot.leaf);
        match leaf.and_then(OnceLock::get) {
            // Acquire: pairs with the release store in `set`.
            Some(leaf) => leaf[spot.word].load(Ordering::Acquire),
            None => 0,
        }
    }

    #[inline]
    fn word(&self, symbol: Symbol) -> u64 {
        self.word_at(&Self::spot(symbol))
    }

    fn set(&self, symbol: Symbol, word: u64) {
        let id = symbol.id();
        let leaf = self
            .leaves
            .get_or_create(id / LEAF)
            .get_or_init(|| (0..LEAF).map(|_| AtomicU64::new(0)).collect());
        // Release: pairs with the acquire load in `word`.
        leaf[(id % LEAF) as usize].store(word, Ordering::Release);
    }

    /// The current entry of a symbol.
    #[inline]
    pub fn get(&self, symbol: Symbol) -> Ready {
        self.get_at(&Self::spot(symbol))
    }

    /// Like `get`, for callers that search many tables.
    #[inline]
    pub(crate) fn get_at(&self, spot: &Spot) -> Ready {
        let word = self.word_at(spot);
        if word == 0 {
            return Ready::Undefined;
        }
        let flags = Flags::from_bits((word >> FLAG_SHIFT) as u8 & KEPT);
        if word & READY != 0 {
            Ready::At(word & ADDRESS, flags)
        } else if word & DEFINED != 0 {
            Ready::Defined(flags)
        } else {
            Ready::Undefined
        }
    }

    /// The address if the symbol is ready.
    #[inline]
    pub fn address(&self, symbol: Symbol) -> Option<u64> {
        let word = self.word(symbol);
        (word & READY != 0).then_some(word & ADDRESS)
    }

    /// Bytes of memory of the table.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves
            .bytes_of(|leaf| leaf.get().map_or(0, |leaf| size_of_val(&**leaf)))
    }

    /// Marks the symbol as defined and not ready.
    pub fn define(&self, symbol: Symbol, flags: Flags) {
        self.set(
            symbol,
            DEFINED | u64::from(flags.bits() & KEPT) << FLAG_SHIFT,
        );
    }

    /// Marks the symbol as ready.
    pub fn publish(&self, symbol: Symbol, address: u64, flags: Flags) {
        if address & !ADDRESS != 0 {
            return self.define(symbol, flags);
        }
        self.set(
            symbol,
            DEFINED | READY | u64::from(flags.bits() & KEPT) << FLAG_SHIFT | address,
        );
    }

    /// Marks the symbol as not defined.
    pub fn clear(&self, symbol: Symbol) {
        if self.word(symbol) != 0 {
            self.set(symbol, 0);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Ready, ReadyTable};
    use crate::flags::Flags;
    use crate::symbol::SymbolPool;

    #[test]
    fn words_go_round() {
        let pool = SymbolPool::new();
        let symbols: Vec<_> = (0..3_000).map(|n| pool.intern(&n.to_string())).collect();
        let table = ReadyTable::new();
        let all = [
            Flags::WEAK,
            Flags::COMMON,
            Flags::EXPORTED,
            Flags::CALLABLE,
            Flags::ABSOLUTE,
        ];
        for (n, symbol) in symbols.iter().enumerate() {
            let flags = all[n % 5] | all[n % 3];
            assert_eq!(table.get(*symbol), Ready::Undefined);
            table.define(*symbol, flags);
            assert_eq!(table.get(*symbol), Ready::Defined(flags));
            assert_eq!(table.address(*symbol), None);
            let address = (1 << 57) - 1 - n as u64;
            table.publish(*symbol, address, flags);
            assert_eq!(table.get(*symbol), Ready::At(address, flags));
        }
        table.publish(symbols[0], 1 << 57, Flags::ABSOLUTE);
        assert_eq!(table.get(symbols[0]), Ready::Defined(Flags::ABSOLUTE));
        table.clear(symbols[1]);
        assert_eq!(table.get(symbols[1]), Ready::Undefined);
    }
}
