//! Simplified bodies of callees, kept by a reader for all callers.
//!
//! A whole-program compiler inlines bottom-up: it simplifies every function once, and inlines the
//! simplified body. The library does the same on demand (`stock`). Before a unit is optimized, its
//! candidates that are not in the library are copied into a module of their own, with their own
//! candidates. The first half of the pipeline runs on it (see `optimize`); that module is a *shelf*
//! and stays.
//! Units then copy their candidates from shelves. Passes leave such a copy alone: it is
//! `available_externally` and `optnone`, which keeps passes from it but not the inliner.
//!
//! Invariants:
//! - An entry lists the symbols it was made of ([`Entry::uses`]): each version that uses the entry
//!   depends on all of them. It holds for a plan that binds those symbols as its own plan did;
//!   under any other plan the library answers that it has no entry.
//! - Globals of shelves stand for globals of the reader's module, function by function: a copy gets
//!   the names of the unit's own plan. A body that mentions anything else (a string that a pass has
//!   made) is not kept.
//! - An entry is *short* if some of its callees did not fit into the budget of the unit that wanted
//!   it. Calls stay in it that a compiler of whole programs would have inlined. A later unit that
//!   wants it makes it again with its own budget, [`MOST_REMAKES`] times. The same holds of an
//!   entry whose callees were left out as they were rare ([`Rare`]), once one of these no longer
//!   is, [`MOST_WARMED`] times.
//! - Shelves hold no more than [`MOST_INSTRUCTIONS`]; then all of them are dropped.
//!
//! # Why
//! Callees are simplified once per reader (`codegen::library`): units copy simplified bodies,
//! `optnone` and `available_externally`, which only the inliner looks into. The symbols they were
//! made of are recorded with them and become dependences of each version that uses them.

pub(crate) mod stock;

use inkwell::llvm_sys::prelude::LLVMValueRef;
use rustc_hash::FxHashMap;

use crate::compile::Rare;
use crate::context::OwnedModule;
use crate::dependence::DependenceKind;
use crate::handles::{FunctionRef, ValueRef};
use crate::plan::ModulePlan;
use crate::summary::SymbolId;

/// Instructions kept in all: some 20 MB.
const MOST_INSTRUCTIONS: usize = 100_000;

/// Most remakes of a short entry.
const MOST_REMAKES: u8 = 1;

/// How often an entry was made, at most, when it is made again for a callee that is no
/// longer rare.
const MOST_WARMED: u8 = 4;

/// One simplified function.
pub(crate) struct Entry {
    /// Its definition on a shelf, which the library keeps as long as the entry.
    function: LLVMValueRef,
    /// Instructions after simplification.
    pub(crate) instructions: u32,
    /// The symbols it was made of, itself included.
    pub(crate) uses: Vec<EntryUse>,
    /// A candidate was left out that it calls, or that an inlined callee calls.
    short: bool,
    /// Rare candidates that it calls, or that an inlined callee calls.
    rare: Vec<SymbolId>,
    /// Number of times it was made again.
    remakes: u8,
}

impl Entry {
    /// Its definition on a shelf.
    pub(crate) fn function(&self) -> FunctionRef<'_> {
        // SAFETY: entries are lent by their library only, which keeps the shelf.
        unsafe { FunctionRef::of(self.function) }
    }
}

/// Something of the module that a simplified body was made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EntryUse {
    pub(crate) symbol: SymbolId,
    pub(crate) kind: DependenceKind,
    /// Whether the module's definition was the bound one.
    defined: bool,
}

/// The simplified bodies that a reader keeps.
#[derive(Default)]
pub(crate) struct Library {
    /// `None` for functions that cannot be kept.
    entries: FxHashMap<SymbolId, Option<Entry>>,
    homes: Homes,
    shelves: Vec<OwnedModule>,
    instructions: usize,
    /// The setting all were made with.
    contract: bool,
    /// Number of the plan they were made under.
    plan: u64,
}

impl Library {
    /// The simplified body of `symbol`, if there is one that holds for `plan`.
    pub(crate) fn entry(&self, plan: &ModulePlan, symbol: SymbolId) -> Option<&Entry> {
        let entry = self.entries.get(&symbol)?.as_ref()?;
        let holds = |used: &EntryUse| plan.import(used.symbol).defined == used.defined;
        entry.uses.iter().all(holds).then_some(entry)
    }

    /// True if another try to keep `symbol` would gain nothing.
    pub(crate) fn knows(&self, symbol: SymbolId, rare: &Rare) -> bool {
        let known = self.entries.get(&symbol);
        known.is_some_and(|entry| {
            let warmed = |entry: &Entry| entry.rare.iter().any(|&callee| !rare.has(callee));
            entry.as_ref().is_none_or(|entry| {
                (!entry.short || entry.remakes >= MOST_REMAKES)
                    && (entry.remakes >= MOST_WARMED || !warmed(entry))
            })
        })
    }

    /// Drops all entries that were not made with these settings, or if there are too many.
    fn prepare(&mut self, plan: &ModulePlan, contract: bool) {
        if self.instructions > MOST_INSTRUCTIONS
            || self.contract != contract
            || self.plan != plan.number
        {
            self.forget();
            self.contract = contract;
            self.plan = plan.number;
        }
    }

    /// Notes that simplified bodies of these functions were tried to be made.
    fn note_tried(&mut self, tried: Vec<SymbolId>) {
        for symbol in tried {
            if let Some(entry) = self.entries.entry(symbol).or_insert(None) {
                entry.remakes += 1;
            }
        }
    }

    fn is_short(&self, symbol: SymbolId) -> bool {
        let entry = self.entries.get(&symbol).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.short)
    }

    /// Enters an entry for `symbol`; it keeps the number of remakes of the one it replaces.
    fn file(&mut self, symbol: SymbolId, mut entry: Entry) {
        let old = self.entries.get(&symbol).and_then(Option::as_ref);
        entry.remakes = old.map_or(0, |old| old.remakes);
        self.instructions += entry.instructions as usize;
        self.entries.insert(symbol, Some(entry));
    }

    /// The symbol of the reader's module for which a global of a shelf stands.
    pub(crate) fn home(&self, global: ValueRef<'_>) -> Option<SymbolId> {
        self.homes.of(global)
    }

    /// Takes up a shelf, and its entries.
    fn take(&mut self, shelf: Shelf) {
        for (symbol, entry) in shelf.entries {
            self.file(symbol, entry);
        }
        self.homes.0.extend(shelf.homes.0);
        self.shelves.push(shelf.module);
    }

    fn forget(&mut self) {
        self.entries.clear();
        self.homes.0.clear();
        self.shelves.clear();
        self.instructions = 0;
    }
}

/// Result of a batch: its module, entries for functions of it, and the symbols that its globals
/// stand for.
struct Shelf {
    module: OwnedModule,
    entries: Vec<(SymbolId, Entry)>,
    homes: Homes,
}

/// Global of a shelf -> symbol of the reader's module. The keys are never dereferenced.
#[derive(Default)]
struct Homes(FxHashMap<LLVMValueRef, SymbolId>);

impl Homes {
    fn of(&self, global: ValueRef<'_>) -> Option<SymbolId> {
        self.0.get(&global.raw()).copied()
    }
}

impl EntryUse {
    fn of(plan: &ModulePlan, symbol: SymbolId, kind: DependenceKind) -> EntryUse {
        EntryUse {
            symbol,
            kind,
            defined: plan.import(symbol).defined,
        }
    }
}
