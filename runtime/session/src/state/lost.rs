//! Answers and symbols that a child of `fork` gives up: the threads that were making them are not
//! in it. See [`Session::give_up_lost`](crate::Session::give_up_lost).

use std::sync::atomic::Ordering;

use uruk_base::locks::thread_mark;

use super::State;
use crate::flags::Flags;
use crate::number::{DylibId, GeneratorId};
use crate::slab::Key;
use crate::state::entry::Owner;
use crate::symbol::Symbol;

/// The generators that another thread answers for.
pub(crate) fn answers(state: &State) -> Vec<(DylibId, GeneratorId)> {
    let mut lost = Vec::new();
    for dylib in state.dylibs.values() {
        for cell in &dylib.generators {
            let question = cell.inside.as_ref();
            if question.is_some_and(|question| question.is_answered_elsewhere()) {
                lost.push((dylib.shared.id, cell.id));
            }
        }
    }
    lost
}

/// Ends the lookups in the queues of generators that only threads outside of the child would read.
pub(crate) fn drop_lookups(state: &mut State) {
    for dylib in state.dylibs.values_mut() {
        for cell in &mut dylib.generators {
            cell.line.retain(|job| !job.is_lost());
        }
    }
}

/// Responsibilities that another thread was making, with their symbols.
pub(crate) fn symbols(state: &State) -> Vec<(Key, Vec<(Symbol, Flags)>)> {
    let own = thread_mark();
    let keys = state.responsibilities.keys().into_iter();
    let all = keys.filter_map(|key| Some((key, state.responsibilities.get(key)?)));
    let lost = all.filter(|(_, cell)| {
        let maker = cell.maker.load(Ordering::Relaxed);
        maker != 0 && maker != own
    });
    lost.map(|(key, cell)| {
        let entries = state.dylib(cell.dylib).into_iter().flat_map(|d| &d.symbols);
        let own = entries.filter(|(_, entry)| entry.owner == Owner::Responsibility(key));
        let symbols = own.map(|(symbol, entry)| (*symbol, entry.flags)).collect();
        (key, symbols)
    })
    .collect()
}
