//! Interned names.
//!
//! Two symbols of one pool are equal exactly when their names are. Names live as
//! long as the pool; there is no per-symbol count to keep, so a [`Symbol`] is a
//! plain number. The limit is 2^32 - 1 names.
//!
//! How it works: an open-addressed table of numbers (id + 1; 0 is free) with eight bits of each
//! name's hash, probed linearly, at most three quarters full. A full table is followed by one of
//! twice the size; the old one stays for readers that still use it, which at most doubles the
//! memory. Finding a name takes no lock; only a new name takes the lock. Names of up to 27 bytes
//! lie in the tables themselves ([`names`](crate::names)).
//!
//! | field | written by | when | ordering |
//! |---|---|---|---|
//! | `names` | the interning thread, under `count` | before the id's cell | see there |
//! | `tags[i]` | the same | before `cells[i]` | relaxed |
//! | `cells[i]` | the same | once, from 0 | release; pairs with the acquire load in `probe` |
//! | `tables[k]` | the same | once, complete | `OnceLock` |
//! | `current` | the same | after `tables[k]` | release; pairs with the acquire load in `table` |
//!
//! # Why
//! A host that generates names for months keeps them: a [`Symbol`] is a number that embedders copy,
//! so a name has no last holder. A name of 7 bytes takes about 36 here, and 8 more in the [ready
//! table](crate::ReadyTable) of its dylib (96 and 8 with a block of the allocator for each name).
//! Old tables stay, as names are looked up in places where a thread must not register thread-locals
//! on first use. These are handlers, and while another thread holds the dynamic loader's lock.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::names::NameTable;
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
    tables: [OnceLock<Table>; TABLES],
    current: AtomicUsize,
    names: NameTable,
    count: Mutex<u32>,
    shown: fn(&str) -> &str,
}

/// Ids by hash.
#[derive(Debug)]
struct Table {
    cells: Box<[AtomicU32]>,
    tags: Box<[AtomicU8]>,
}

impl Table {
    fn new(cells: usize) -> Table {
        Table {
            cells: (0..cells).map(|_| AtomicU32::new(0)).collect(),
            tags: (0..cells).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// Whether a table with `count` names is too small.
    fn is_full(&self, count: usize) -> bool {
        count * 4 > self.cells.len() * 3
    }

    /// Puts an id into a free cell; its name is already stored.
    fn put(&self, at: usize, hash: u64, id: u32) {
        self.tags[at].store(tag(hash), Ordering::Relaxed);
        // Release: a thread that finds the id also finds its tag and its name.
        self.cells[at].store(id + 1, Ordering::Release);
    }

    /// The first free cell for a hash.
    fn free(&self, hash: u64) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = hash as usize & mask;
        while self.cells[at].load(Ordering::Relaxed) != 0 {
            at = (at + 1) & mask;
        }
        at
    }
}

/// Bits of a hash that do not select the cell.
fn tag(hash: u64) -> u8 {
    (hash >> 56) as u8
}

impl Default for SymbolPool {
    fn default() -> Self {
        Self::new()
    }
}

impl SymbolPool {
    /// An empty pool.
    pub fn new() -> Self {
        let pool = Self {
            hasher: foldhash::fast::RandomState::default(),
            tables: std::array::from_fn(|_| OnceLock::new()),
            current: AtomicUsize::new(0),
            names: NameTable::new(),
            count: Mutex::new(0),
            shown: |name| name,
        };
        pool.tables[0].get_or_init(|| Table::new(FIRST_TABLE));
        pool
    }

    /// An empty pool that formats names in errors by `shown`: for layers that generate names of
    /// their own.
    pub fn shown_by(shown: fn(&str) -> &str) -> Self {
        Self {
            shown,
            ..Self::new()
        }
    }

    /// The name of a symbol for messages.
    pub fn shown(&self, symbol: Symbol) -> &str {
        (self.shown)(self.name(symbol))
    }

    #[inline]
    fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    #[inline]
    fn table(&self) -> &Table {
        // Acquire: pairs with the release store in `grow`.
        let current = self.current.load(Ordering::Acquire);
        self.tables[current]
            .get()
            .expect("a table is complete before it is current")
    }

    /// The symbol, or the index of the free cell where it would be put.
    #[inline]
    fn probe(&self, table: &Table, hash: u64, name: &str) -> Result<Symbol, usize> {
        let mask = table.cells.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            // Acquire: pairs with the release store in `put`.
            let cell = table.cells[at].load(Ordering::Acquire);
            if cell == 0 {
                return Err(at);
            }
            if table.tags[at].load(Ordering::Relaxed) == tag(hash) && self.names.is(cell - 1, name)
            {
                return Ok(Symbol(cell - 1));
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
    /// When the pool holds 2^30 names (some 40 GB of them).
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
        assert!(id < NameTable::LIMIT, "the symbol pool is full");
        if table.is_full(id as usize + 1) {
            table = self.grow(table, id);
            at = table.free(hash);
        }
        self.names.set(id, name);
        table.put(at, hash, id);
        *count = id + 1;
        Symbol(id)
    }

    /// Publishes a table of twice the size with the same content: the ids below `count`; called
    /// under the lock of `count`.
    fn grow(&self, old: &Table, count: u32) -> &Table {
        // Relaxed: only the holder of the lock writes it.
        let next = self.current.load(Ordering::Relaxed) + 1;
        let table = self.tables[next].get_or_init(|| {
            let table = Table::new(old.cells.len() * 2);
            for id in 0..count {
                let hash = self.hash(self.names.get(id));
                table.put(table.free(hash), hash, id);
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
        self.names.get(symbol.0)
    }

    /// Bytes that the names take, with their tables.
    pub fn bytes(&self) -> usize {
        let tables = self.tables.iter().filter_map(OnceLock::get);
        let cells: usize = tables.map(|table| table.cells.len()).sum();
        cells * (size_of::<u32>() + size_of::<u8>()) + self.names.bytes()
    }

    /// The number of names.
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
