//! The short path of a lookup: one symbol, for a thread that waits, whose unit was not started yet.
//!
//! It does the work of [`State::step`] for such a lookup, without the data of a lookup that may be
//! suspended: a generator's queue, a wait for definitions, several symbols. Where one of those may
//! be needed, it changes nothing, and the lookup takes the long path.

use super::entry::{Owner, Place};
use super::{Query, State};
use crate::effects::Launching;
use crate::flags::{Flags, SymbolState};
use crate::lookup::{Completion, Required};
use crate::number::DylibId;
use crate::symbol::Symbol;

use smallvec::smallvec;

/// The outcome of the short path.
pub(crate) enum Short {
    /// The symbol is ready at this address.
    Ready(u64),
    /// The caller must run the unit, and wait for the completion.
    Started(Launching),
    /// Nothing was done.
    Long,
}

impl State {
    /// Searches `symbol` in `dylib`, and in its link order if `in_order`. Calls `completion` only
    /// if a unit is started.
    pub(crate) fn take_short_way(
        &mut self,
        dylib: DylibId,
        in_order: bool,
        symbol: Symbol,
        completion: impl FnOnce() -> Completion,
    ) -> Short {
        // A unit with displaced symbols is told of them before it starts.
        if self.ended || !self.tentative.is_empty() {
            return Short::Long;
        }
        let Some(place) = self.first_match(dylib, in_order, symbol) else {
            return Short::Long;
        };
        let Some(entry) = self.entry_mut(place) else {
            return Short::Long;
        };
        if entry.flags.contains(Flags::SIDE_EFFECTS_ONLY) {
            return Short::Long;
        }
        let unit = match (entry.state, entry.owner) {
            (SymbolState::Ready, _) => return Short::Ready(entry.address),
            (SymbolState::NeverSearched, Owner::Unit(unit)) => unit,
            _ => return Short::Long,
        };
        // It is `None` while the unit is told of discarded symbols.
        if self.units.get(unit).is_none_or(|cell| cell.unit.is_none()) {
            return Short::Long;
        }
        let Some(launching) = self.set_off(unit) else {
            return Short::Long;
        };
        let query = self.queries.insert(Query {
            required: Required::Ready,
            remaining: 1,
            slots: smallvec![None],
            completion: completion(),
        });
        if let Some(entry) = self.entry_mut(place) {
            entry.queries.push((query, 0));
        }
        Short::Started(launching)
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
}
