//! The symbol tables: all state that is not on the ready path.
//!
//! One lock guards it (`Session::lock`), and it is never taken twice. Lookups are all-or-nothing
//! over several dylibs, failures spread over all of them, and locks per dylib would make neither
//! simpler nor correct. A stay under the lock is short: its cost is proportional to the change,
//! whatever else is pending, and it calls no callbacks. Ready lookups, interning and compiling
//! happen outside.
//!
//! Invariants:
//! - The word of a symbol in its dylib's `ReadyTable` agrees with its entry.
//! - An entry is owned by the unit that promises it, or by the responsibility that is producing it;
//!   an emitted, ready or failed one has no owner.
//! - An entry has a graph node only while it is not ready and another node depends on it, or it
//!   waits for a dependence.
//! - Changes are made by the functions of `state/*.rs`, which check first and then change, so that
//!   an error leaves everything as it was.

pub(crate) mod aliases;
mod bytes;
mod circles;
pub(crate) mod define;
pub(crate) mod dylibs;
pub(crate) mod entry;
pub(crate) mod lost;
pub(crate) mod publish;
pub(crate) mod remove;
pub(crate) mod search;
pub(crate) mod trackers;
pub(crate) mod waiting;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use smallvec::SmallVec;

use self::aliases::Aliases;
use self::dylibs::DylibTable;
use self::entry::{Entry, Place};
use self::trackers::Trackers;
use self::waiting::WaitingLookups;
use crate::error::{Names, SessionError};
use crate::flags::{Flags, SymbolState};
use crate::generator::GeneratorCell;
use crate::graph::{Graph, NodeId};
use crate::lookup::{Completion, Found, Required};
use crate::number::{DylibId, NumberMap, NumberSet, TrackerKey};
use crate::shared::{DylibShared, Visibility};
use crate::slab::{Key, Slab};
use crate::symbol::{Symbol, SymbolPool};
use crate::unit::Unit;

/// A dylib.
pub(crate) struct DylibState {
    pub shared: Arc<DylibShared>,
    pub symbols: NumberMap<Symbol, Entry>,
    pub default_tracker: TrackerKey,
    pub trackers: NumberSet<TrackerKey>,
    pub link_order: Vec<(DylibId, Visibility)>,
    /// Dylibs that have it in their link order.
    pub searchers: NumberSet<DylibId>,
    pub generators: Vec<GeneratorCell>,
    pub inits: Vec<Symbol>,
}

/// A unit that promises symbols.
pub(crate) struct UnitCell {
    /// `None` while it is being told about discarded symbols.
    pub unit: Option<Box<dyn Unit>>,
    pub dylib: DylibId,
    pub symbols: Vec<(Symbol, Flags)>,
    pub init: Option<Symbol>,
    /// Number of entries that it owns.
    pub live: usize,
    /// Discarded symbols that it was not told yet.
    pub discards: Vec<Symbol>,
    /// Set if it was looked up while `unit` was `None`.
    pub launch: Option<Launch>,
}

/// The mark of the thread that has a responsibility, if it declared itself; else 0. Relaxed: read
/// in the child of a fork.
pub(crate) type Maker = Arc<AtomicUsize>;

/// A unit's symbols, on their way to `materialize`.
#[derive(Debug)]
pub(crate) struct Launch {
    pub responsibility: Key,
    pub maker: Maker,
    pub shared: Arc<DylibShared>,
    pub symbols: Vec<(Symbol, Flags)>,
    pub init: Option<Symbol>,
}

/// State behind a `Responsibility` handle. Absent: finished or defunct.
#[derive(Debug)]
pub(crate) struct ResponsibilityState {
    pub dylib: DylibId,
    pub tracker: TrackerKey,
    pub maker: Maker,
}

/// A lookup that found all symbols and waits for them to be ready.
pub(crate) struct Query {
    pub required: Required,
    pub remaining: usize,
    pub slots: SmallVec<[Option<Found>; 1]>,
    pub completion: Completion,
}

/// See the module text.
pub(crate) struct State {
    pub pool: Arc<SymbolPool>,
    pub dylibs: DylibTable<DylibState>,
    pub graph: Graph<Place>,
    pub units: Slab<UnitCell>,
    pub responsibilities: Slab<ResponsibilityState>,
    pub queries: Slab<Query>,
    pub trackers: Trackers,
    pub next_generator: u64,
    /// Symbols that emitted code waits for and that no lookup requested: their unit was given back.
    pub stalled: HashSet<Place>,
    /// Lookups that wait for definitions.
    pub waiting: WaitingLookups,
    /// The target of each alias, to find cycles.
    pub aliases: Aliases,
    pub ended: bool,
}

impl State {
    pub(crate) fn new(pool: Arc<SymbolPool>) -> Self {
        Self {
            pool,
            dylibs: DylibTable::new(),
            graph: Graph::new(),
            units: Slab::new(),
            responsibilities: Slab::new(),
            queries: Slab::new(),
            trackers: Trackers::default(),
            next_generator: 0,
            stalled: HashSet::new(),
            waiting: WaitingLookups::new(),
            aliases: Aliases::default(),
            ended: false,
        }
    }

    pub(crate) fn dylib(&self, id: DylibId) -> Option<&DylibState> {
        self.dylibs.get(&id)
    }

    pub(crate) fn dylib_mut(&mut self, id: DylibId) -> Option<&mut DylibState> {
        self.dylibs.get_mut(&id)
    }

    pub(crate) fn entry(&self, (dylib, symbol): Place) -> Option<&Entry> {
        self.dylib(dylib)?.symbols.get(&symbol)
    }

    pub(crate) fn entry_mut(&mut self, (dylib, symbol): Place) -> Option<&mut Entry> {
        self.dylib_mut(dylib)?.symbols.get_mut(&symbol)
    }

    /// Whether a lookup waits for a symbol; the list may still contain an answered one.
    pub(crate) fn is_asked(&self, place: Place) -> bool {
        let queries = self.entry(place).map(|entry| &entry.queries);
        let mut queries = queries.into_iter().flatten();
        queries.any(|(query, _)| self.queries.get(*query).is_some())
    }

    /// The chain of aliases from `start` on, if it contains a cycle.
    pub(crate) fn alias_cycle(&mut self, start: Place) -> Option<Vec<Place>> {
        let State {
            aliases, dylibs, ..
        } = self;
        aliases.cycle(start, |(dylib, symbol)| {
            let entry = dylibs.get(&dylib).and_then(|it| it.symbols.get(&symbol));
            entry.is_some_and(|entry| {
                use SymbolState::{Emitted, Ready, Resolved};
                matches!(entry.state, Resolved | Emitted | Ready)
            })
        })
    }

    /// Whether emitted code waits for a symbol.
    pub(crate) fn is_needed(&self, place: Place) -> bool {
        let node = self.entry(place).and_then(|entry| entry.node);
        node.is_some_and(|node| self.graph.is_needed(node))
    }

    pub(crate) fn dylib_name(&self, id: DylibId) -> Arc<str> {
        match self.dylib(id) {
            Some(dylib) => Arc::clone(&dylib.shared.name),
            None => "(removed)".into(),
        }
    }

    /// The names for an error, one group per dylib in order of appearance.
    pub(crate) fn name_set(&self, places: impl IntoIterator<Item = Place>) -> Names {
        let mut order: Vec<(DylibId, Vec<Symbol>)> = Vec::new();
        let mut at: NumberMap<DylibId, usize> = NumberMap::default();
        for (dylib, symbol) in places {
            let index = *at.entry(dylib).or_insert_with(|| {
                order.push((dylib, Vec::new()));
                order.len() - 1
            });
            order[index].1.push(symbol);
        }
        let sets = order
            .into_iter()
            .map(|(dylib, symbols)| (self.dylib_name(dylib), symbols))
            .collect();
        Names::new(&self.pool, sets)
    }

    /// The dylib, or the error that it is defunct.
    pub(crate) fn open(
        &mut self,
        dylib: &Arc<DylibShared>,
    ) -> Result<&mut DylibState, SessionError> {
        if self.ended {
            return Err(SessionError::Ended);
        }
        self.dylib_mut(dylib.id)
            .ok_or_else(|| SessionError::DylibDefunct {
                dylib: Arc::clone(&dylib.name),
            })
    }

    /// The graph node of a symbol that is not ready.
    pub(crate) fn node(&mut self, place: Place) -> Option<NodeId> {
        let dylib = self.dylibs.get_mut(&place.0)?;
        let entry = dylib.symbols.get_mut(&place.1)?;
        let graph = &mut self.graph;
        Some(*entry.node.get_or_insert_with(|| graph.add(place)))
    }

    /// Sets the link order of a dylib.
    pub(crate) fn set_order(&mut self, id: DylibId, order: Vec<(DylibId, Visibility)>) {
        let Some(state) = self.dylib_mut(id) else {
            return;
        };
        let added: Vec<DylibId> = order.iter().map(|(other, _)| *other).collect();
        let before = std::mem::replace(&mut state.link_order, order);
        for (other, _) in before {
            if let Some(other) = self.dylib_mut(other) {
                other.searchers.remove(&id);
            }
        }
        for other in added {
            if let Some(other) = self.dylib_mut(other) {
                other.searchers.insert(id);
            }
        }
        self.show_order(id);
    }

    /// Updates the copy of a dylib's link order that ready lookups see.
    pub(crate) fn show_order(&self, id: DylibId) {
        let Some(state) = self.dylib(id) else {
            return;
        };
        let others = state.link_order.iter().filter(|(other, _)| *other != id);
        let order = others.filter_map(|(other, seen)| {
            let shared = &self.dylib(*other)?.shared;
            Some((Arc::clone(shared), *seen))
        });
        state.shared.order.set(order.collect());
    }

    /// The place where a search that asks no generator finds a symbol.
    fn first_match(&self, dylib: DylibId, in_order: bool, symbol: Symbol) -> Option<Place> {
        let first = self.dylib(dylib)?;
        if first.symbols.contains_key(&symbol) {
            return Some((dylib, symbol));
        }
        if !in_order || !first.generators.is_empty() {
            return None;
        }
        let others = first.link_order.iter().filter(|(id, _)| *id != dylib);
        for (id, seen) in others {
            let Some(state) = self.dylib(*id) else {
                continue;
            };
            match state.symbols.get(&symbol) {
                Some(entry) if seen.sees(entry.flags) => return Some((*id, symbol)),
                None if !state.generators.is_empty() => return None,
                _ => {}
            }
        }
        None
    }

    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        let units: usize = self.units.iter().map(UnitCell::bytes).sum();
        let dylibs: usize = self.dylibs.values().map(DylibState::bytes).sum();
        let tables = self.dylibs.bytes() + self.trackers.bytes();
        let slabs = self.units.bytes() + self.responsibilities.bytes() + self.queries.bytes();
        self.pool.bytes() + units + dylibs + tables + slabs
    }
}
