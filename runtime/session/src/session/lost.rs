//! Answers and symbols that a child of `fork` gives up: the threads that were making them are not
//! in it.

use std::sync::atomic::Ordering;

use uruk_base::locks::thread_mark;

use super::Session;
use crate::error::SessionError;
use crate::slab::Key;
use crate::state::{Owner, State};

impl Session {
    /// Gives up lost work in the child of a `fork`, after
    /// [`Pool::after_fork_child`](crate::Pool::after_fork_child). Lookups no longer queue behind
    /// one that another thread was answering. Symbols fail that another thread had declared to be
    /// making ([`making`](crate::Responsibility::making)). Other threads of the child must not
    /// answer a question or make a symbol meanwhile.
    pub fn give_up_lost(&self) {
        self.change(|state, effects| {
            for (dylib, generator) in state.lost_answers() {
                state.leave_generator(dylib, generator, effects);
            }
            for (key, symbols) in state.lost_symbols() {
                let cause = |state: &State, places: &[crate::state::Place]| {
                    SessionError::Abandoned(state.name_set(places.iter().copied()))
                };
                state.fail(key, &symbols, cause, effects);
            }
        });
    }
}

impl State {
    /// The generators that another thread answers for.
    fn lost_answers(&self) -> Vec<(crate::DylibId, crate::GeneratorId)> {
        let mut lost = Vec::new();
        for (id, dylib) in &self.dylibs {
            for cell in &dylib.generators {
                let question = cell.inside.as_ref();
                if question.is_some_and(|question| question.is_answered_elsewhere()) {
                    lost.push((*id, cell.id));
                }
            }
        }
        lost
    }

    /// Responsibilities that another thread was making, with their symbols.
    fn lost_symbols(&self) -> Vec<(Key, Vec<(crate::Symbol, crate::Flags)>)> {
        let own = thread_mark();
        let keys = self.responsibilities.keys().into_iter();
        let all = keys.filter_map(|key| Some((key, self.responsibilities.get(key)?)));
        let lost = all.filter(|(_, cell)| {
            let maker = cell.maker.load(Ordering::Relaxed);
            maker != 0 && maker != own
        });
        lost.map(|(key, cell)| {
            let entries = self.dylib(cell.dylib).into_iter().flat_map(|d| &d.symbols);
            let own = entries.filter(|(_, entry)| entry.owner == Owner::Responsibility(key));
            let symbols = own.map(|(symbol, entry)| (*symbol, entry.flags)).collect();
            (key, symbols)
        })
        .collect()
    }
}
