//! Interned names.
//!
//! Two symbols of one pool are equal exactly when their names are. Names live as
//! long as the pool; there is no per-symbol count to keep, so a [`Symbol`] is a
//! plain number. The limit is 2^32 - 1 names.
//!
//! How it works: an open-addressed table of words `hash << 32 | id + 1` (0 is
//! free), probed linearly, never more than half full. A full table is followed
//! by one of twice the size; the old one stays for readers that still hold it,
//! which at most doubles the memory. Finding a name takes no lock and writes
//! nothing; only a new name takes the lock.
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `names[id]` | the interning thread, under `count` | before the id's word | `OnceLock` |
//! | `cells[i]` | the same | once, from 0 | release; pairs with the acquire load in `probe` |
//! | `tables[k]` | the same | once, complete | `OnceLock` |
//! | `current` | the same | after `tables[k]` | release; pairs with the acquire load in `table` |

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::chunked::Chunked;
use crate::sync::Mutex;

/// Cells in the first table.
const FIRST_TABLE: usize = 1024;
/// Tables double, so 24 of them hold 2^32 names.
const TABLES: usize = 24;

/// A name of one [`SymbolPool`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol(u32);

impl Symbol {
    /// The dense number of this name in its pool, from 0.
    #[inline]
    pub const fn id(self) -> u32 {
        self.0
    }
}

/// The names of a session. May be shared by several sessions.
#[derive(Debug)]
pub struct SymbolPool {
    hasher: foldhash::fast::RandomState,
    tables: [OnceLock<Box<[AtomicU64]>>; TABLES],
    current: AtomicUsize,
    names: Chunked<OnceLock<Box<str>>, 8>,
    count: Mutex<u32>,
    shown: fn(&str) -> &str,
}

impl Default for SymbolPool {
    fn default() -> Self {
        Self::new()
    }
}

fn empty_table(cells: usize) -> Box<[AtomicU64]> {
    (0..cells).map(|_| AtomicU64::new(0)).collect()
}

impl SymbolPool {
    /// An empty pool.
    pub fn new() -> Self {
        let pool = Self {
            hasher: foldhash::fast::RandomState::default(),
            tables: std::array::from_fn(|_| OnceLock::new()),
            current: AtomicUsize::new(0),
            names: Chunked::new(),
            count: Mutex::new(0),
            shown: |name| name,
        };
        pool.tables[0].get_or_init(|| empty_table(FIRST_TABLE));
        pool
    }

    /// An empty pool whose names are told to people, in errors, as `shown` says: for layers
    /// that make up names of their own.
    pub fn shown_by(shown: fn(&str) -> &str) -> Self {
        Self {
            shown,
            ..Self::new()
        }
    }

    /// The name of a symbol, for people.
    pub fn shown(&self, symbol: Symbol) -> &str {
        (self.shown)(self.name(symbol))
    }

    #[inline]
    fn table(&self) -> &[AtomicU64] {
        // Acquire: pairs with the release store in `grow`.
        let current = self.current.load(Ordering::Acquire);
        self.tables[current]
            .get()
            .expect("a table is complete before it is current")
    }

    #[inline]
    fn hash(&self, name: &str) -> u32 {
        (self.hasher.hash_one(name) >> 32) as u32
    }

    /// The symbol, or the index of the free cell where it would be put.
    #[inline]
    fn probe(&self, table: &[AtomicU64], hash: u32, name: &str) -> Result<Symbol, usize> {
        let mask = table.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            // Acquire: pairs with the release store in `put`.
            let cell = table[at].load(Ordering::Acquire);
            if cell == 0 {
                return Err(at);
            }
            if (cell >> 32) as u32 == hash {
                let symbol = Symbol(cell as u32 - 1);
                if self.name(symbol) == name {
                    return Ok(symbol);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The symbol of a name that was interned before. Takes no lock.
    #[inline]
    pub fn find(&self, name: &str) -> Option<Symbol> {
        self.probe(self.table(), self.hash(name), name).ok()
    }

    /// The symbol of a name. Takes no lock if the name is known.
    ///
    /// # Panics
    /// When the pool holds 2^32 - 1 names (some 200 GB of them).
    pub fn intern(&self, name: &str) -> Symbol {
        let hash = self.hash(name);
        if let Ok(symbol) = self.probe(self.table(), hash, name) {
            return symbol;
        }
        let mut count = self.count.lock();
        let mut table = self.table();
        let mut at = match self.probe(table, hash, name) {
            Ok(symbol) => return symbol,
            Err(at) => at,
        };
        let id = *count;
        assert!(id < u32::MAX - 1, "the symbol pool is full");
        if (id as usize + 1) * 2 > table.len() {
            table = self.grow(table);
            at = match self.probe(table, hash, name) {
                Ok(symbol) => return symbol,
                Err(at) => at,
            };
        }
        let _ = self.names.get_or_create(id).set(name.into());
        // Release: whoever finds the id also finds its name.
        table[at].store(u64::from(hash) << 32 | u64::from(id + 1), Ordering::Release);
        *count = id + 1;
        Symbol(id)
    }

    /// Publishes a table of twice the size with the same content; under `count`.
    fn grow(&self, old: &[AtomicU64]) -> &[AtomicU64] {
        let next = self.current.load(Ordering::Relaxed) + 1;
        let table = self.tables[next].get_or_init(|| {
            let mut table = empty_table(old.len() * 2);
            let mask = table.len() - 1;
            for cell in old {
                let cell = cell.load(Ordering::Relaxed);
                if cell == 0 {
                    continue;
                }
                let mut at = (cell >> 32) as usize & mask;
                while *table[at].get_mut() != 0 {
                    at = (at + 1) & mask;
                }
                *table[at].get_mut() = cell;
            }
            table
        });
        // Release: pairs with the acquire load in `table`.
        self.current.store(next, Ordering::Release);
        table
    }

    /// The name of a symbol. Takes no lock. A symbol of another pool gives some
    /// other name or the empty string.
    #[inline]
    pub fn name(&self, symbol: Symbol) -> &str {
        self.names
            .get(symbol.0)
            .and_then(OnceLock::get)
            .map_or("", |name| name)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        *self.count.lock() as usize
    }

    /// Whether no name was interned yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::SymbolPool;

    #[test]
    fn names_survive_growth() {
        let pool = SymbolPool::new();
        let names: Vec<String> = (0..20_000).map(|n| format!("name{n}")).collect();
        let symbols: Vec<_> = names.iter().map(|name| pool.intern(name)).collect();
        for (name, symbol) in names.iter().zip(&symbols) {
            assert_eq!(pool.intern(name), *symbol);
            assert_eq!(pool.find(name), Some(*symbol));
            assert_eq!(pool.name(*symbol), name);
        }
        assert_eq!(pool.len(), names.len());
        assert_eq!(pool.find("name"), None);
        assert_eq!(pool.intern(""), pool.intern(""));
    }

    #[test]
    fn racing_threads_agree() {
        let pool = SymbolPool::new();
        let all: Vec<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..5_000).map(|n| pool.intern(&format!("x{n}"))).collect())
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(pool.len(), 5_000);
    }
}
