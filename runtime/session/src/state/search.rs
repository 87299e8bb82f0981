//! Matching a lookup against the dylibs, and starting what it needs.

use super::circles::{generator_mut, open_circle};
use super::dylibs::DylibTable;
use super::entry::{Owner, Place};
use super::{DylibState, Launch, Maker, Query, ResponsibilityState, State};
use crate::effects::{Effects, Launching};
use crate::error::{Names, SessionError};
use crate::flags::{Flags, SymbolState};
use crate::generator::{Asking, GeneratorCell};
use crate::graph::NodeId;
use crate::inside::Question;
use crate::job::{Job, Outcome};
use crate::lookup::{Completion, LookupResult, Missing, Need, Required};
use crate::number::{DylibId, GeneratorId, TrackerKey};
use crate::slab::Key;
use crate::symbol::Symbol;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

/// The match of one symbol of a lookup.
enum Match {
    At(Place),
    Missing,
    /// The dylib at this index of the order has generators that were not asked.
    Ask(usize),
}

/// The next step of a lookup.
pub(crate) enum Step {
    /// It is answered, or waits in a query, in a generator's queue, or for definitions.
    Settled,
    Ask(Box<Asking>),
}

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
    fn find(&self, job: &Job, symbol: Symbol) -> Match {
        for (index, (dylib, visibility)) in job.order.iter().enumerate() {
            let Some(state) = self.dylib(*dylib) else {
                continue;
            };
            if let Some(entry) = state.symbols.get(&symbol) {
                if visibility.sees(entry.flags) {
                    return Match::At((*dylib, symbol));
                }
                continue;
            }
            let unasked = |cell: &GeneratorCell| !job.asked.contains(&cell.id);
            if state.generators.iter().any(unasked) {
                return Match::Ask(index);
            }
        }
        Match::Missing
    }

    /// Advances a lookup by one step: to a generator, or to its end.
    pub(crate) fn step(&mut self, mut job: Job, effects: &mut Effects) -> Step {
        let granted = job.granted.take();
        if self.ended {
            effects.finish(job, Err(SessionError::Ended));
            return Step::Settled;
        }
        let matches: SmallVec<[Match; 2]> = job
            .symbols
            .iter()
            .map(|(symbol, _)| self.find(&job, *symbol))
            .collect();
        let ask = matches.iter().filter_map(|found| match found {
            Match::Ask(index) => Some(*index),
            _ => None,
        });
        if let Some(index) = ask.min() {
            let missing = matches
                .iter()
                .zip(&job.symbols)
                .filter(|(found, _)| matches!(found, Match::Ask(at) if *at == index))
                .map(|(_, symbol)| *symbol)
                .collect();
            return self.ask(job, index, missing, granted, effects);
        }
        if let Some((dylib, id)) = granted {
            self.leave_generator(dylib, id, effects);
        }
        self.complete(job, &matches, effects);
        Step::Settled
    }

    /// Sends a lookup into the next generator of a dylib, or into its queue.
    fn ask(
        &mut self,
        mut job: Job,
        index: usize,
        missing: Vec<(Symbol, Need)>,
        granted: Option<(DylibId, GeneratorId)>,
        effects: &mut Effects,
    ) -> Step {
        let dylib = job.order[index].0;
        let next = self.dylibs.get_mut(&dylib).and_then(|state| {
            let mut cells = state.generators.iter_mut();
            let cell = cells.find(|cell| !job.asked.contains(&cell.id))?;
            Some((cell, &state.shared))
        });
        let Some((cell, shared)) = next else {
            // `find` saw it under the same lock.
            effects.finish(job, Err(SessionError::Ended));
            return Step::Settled;
        };
        let mine = granted == Some((dylib, cell.id));
        let id = cell.id;
        let outer = job.inside.question.iter().flat_map(Question::chain);
        let asked: Vec<&[Symbol]> = outer
            .filter(|question| question.id == id && !question.is_over())
            .map(|question| question.symbols.as_slice())
            .collect();
        let past = std::mem::take(&mut job.past);
        let nested = cell.busy && !mine && (past || !asked.is_empty());
        let circle: Vec<Symbol> = missing
            .iter()
            .map(|(symbol, _)| *symbol)
            .filter(|symbol| asked.iter().any(|asked| asked.contains(symbol)))
            .collect();
        let step = if !circle.is_empty() {
            let names = self.name_set(circle.into_iter().map(|symbol| (dylib, symbol)));
            effects.finish(job, Err(SessionError::GeneratorCycle(names)));
            Step::Settled
        } else if cell.busy && !mine && !nested {
            if open_circle(&mut self.dylibs, id, &job, effects) {
                job.past = true;
                return self.ask(job, index, missing, granted, effects);
            }
            if let Some(cell) = generator_mut(&mut self.dylibs, dylib, id) {
                cell.line.push_back(job);
            }
            Step::Settled
        } else {
            cell.busy = true;
            job.asked.push(id);
            let symbols = missing.iter().map(|(symbol, _)| *symbol).collect();
            let question = Question::new(id, shared, symbols, nested, job.inside.clone());
            let question = Arc::new(question);
            if !nested {
                cell.inside = Some(Arc::clone(&question));
            }
            Step::Ask(Box::new(Asking {
                generator: Arc::clone(&cell.generator),
                question,
                job,
                missing,
            }))
        };
        if let Some((dylib, id)) = granted
            && !mine
        {
            self.leave_generator(dylib, id, effects);
        }
        step
    }

    /// Whether a dylib still has a generator.
    pub(crate) fn has_generator(&self, dylib: DylibId, id: GeneratorId) -> bool {
        let mut generators = self.dylib(dylib).into_iter().flat_map(|d| &d.generators);
        generators.any(|cell| cell.id == id)
    }

    /// Takes a lookup out of a generator: the next in the queue may enter. False if the generator
    /// was removed meanwhile.
    pub(crate) fn leave_generator(
        &mut self,
        dylib: DylibId,
        id: GeneratorId,
        effects: &mut Effects,
    ) -> bool {
        let Some(state) = self.dylibs.get_mut(&dylib) else {
            return false;
        };
        let Some(cell) = state.generators.iter_mut().find(|cell| cell.id == id) else {
            return false;
        };
        cell.inside = None;
        match cell.line.pop_front() {
            Some(mut job) => {
                job.granted = Some((dylib, id));
                effects.resume(job);
            }
            None => cell.busy = false,
        }
        true
    }

    fn complete(&mut self, job: Job, matches: &[Match], effects: &mut Effects) {
        let mut missing = Vec::new();
        let mut failed = Vec::new();
        for (found, (symbol, need)) in matches.iter().zip(&job.symbols) {
            let lost = match found {
                Match::At(place) => match self.entry(*place) {
                    Some(entry) if entry.state == SymbolState::Failed => {
                        failed.push(*place);
                        false
                    }
                    // It has no address that a lookup could require.
                    Some(entry) => entry.flags.contains(Flags::SIDE_EFFECTS_ONLY),
                    None => true,
                },
                _ => true,
            };
            if lost && *need == Need::Required {
                missing.push(*symbol);
            }
        }
        if !missing.is_empty() {
            if job.missing == Missing::Wait
                && may_be_defined(&self.dylibs, &job)
                && !job.is_abandoned()
            {
                return self.waiting.add(job, missing);
            }
            let error = self.not_found(&job, missing);
            return effects.finish(job, Err(error));
        }
        if job.flags_only() {
            let found = matches
                .iter()
                .filter_map(|found| match found {
                    Match::At(place) => Some((place.1, self.entry(*place)?.flags)),
                    _ => None,
                })
                .collect();
            return effects.finish_flags(job, found);
        }
        if let Some(first) = failed.first() {
            let cause = self.entry(*first).and_then(|entry| entry.error.as_deref());
            let cause = match cause {
                Some(SessionError::Failed { cause, .. }) => cause.clone(),
                other => other.map(|error| error.clone().into()),
            };
            let symbols = self.name_set(failed);
            return effects.finish(job, Err(SessionError::Failed { symbols, cause }));
        }
        self.lodge(job, matches, effects);
    }

    pub(crate) fn not_found(&self, job: &Job, missing: Vec<Symbol>) -> SessionError {
        let first = job.order.first().map(|(dylib, _)| *dylib);
        let names = match first {
            Some(dylib) => self.name_set(missing.into_iter().map(|s| (dylib, s))),
            None => Names::new(&self.pool, vec![("(no dylib)".into(), missing)]),
        };
        SessionError::NotFound(names)
    }

    /// Ends the search when all symbols are found: takes those in the required state, waits for the
    /// rest.
    fn lodge(&mut self, job: Job, matches: &[Match], effects: &mut Effects) {
        let required = job.required;
        let mut slots = smallvec![None; job.symbols.len()];
        let mut waits: SmallVec<[_; 2]> = SmallVec::new();
        for (slot, found) in matches.iter().enumerate() {
            let Match::At(place) = found else { continue };
            let Some(entry) = self.entry(*place) else {
                continue;
            };
            if entry.satisfies(required) {
                slots[slot] = Some(entry.found(*place));
            } else {
                waits.push((slot as u32, *place));
            }
        }
        let Outcome::Addresses(completion) = job.outcome else {
            return;
        };
        if waits.is_empty() {
            let result = LookupResult::new(slots.into_iter().flatten().collect());
            effects.completions.push((completion, Ok(result)));
            return;
        }
        let query = self.queries.insert(Query {
            required,
            remaining: waits.len(),
            slots,
            completion,
        });
        for (slot, place) in waits {
            self.await_entry(query, slot, place, effects);
        }
    }

    fn await_entry(&mut self, query: Key, slot: u32, place: Place, effects: &mut Effects) {
        let Some(entry) = self.entry_mut(place) else {
            return;
        };
        entry.queries.push((query, slot));
        let (owner, node) = (entry.owner, entry.node);
        if let Owner::Unit(unit) = owner {
            self.launch(unit, effects);
        } else if let Some(node) = node {
            for stalled in self.stalled_below(node) {
                self.launch_owner(stalled, effects);
            }
        }
    }

    /// The dependences of a node that were given back because something was missing.
    fn stalled_below(&self, node: NodeId) -> Vec<Place> {
        if self.stalled.is_empty() {
            return Vec::new();
        }
        let mut below = self.graph.waits_for(node);
        below.retain(|place| self.stalled.contains(place));
        below
    }

    fn launch_owner(&mut self, place: Place, effects: &mut Effects) {
        if let Some(Owner::Unit(unit)) = self.entry(place).map(|entry| entry.owner) {
            self.launch(unit, effects);
        }
    }

    /// Requests the dependences of an emitted symbol that were given back once more, if a lookup
    /// waits for the symbol already. (A later lookup requests them itself.)
    pub(crate) fn ask_below(&mut self, place: Place, effects: &mut Effects) {
        let Some(node) = self.entry(place).and_then(|entry| entry.node) else {
            return;
        };
        let stalled = self.stalled_below(node);
        if stalled.is_empty() {
            return;
        }
        let above = self.graph.dependents(node);
        if above.into_iter().any(|place| self.is_asked(place)) {
            for place in stalled {
                self.launch_owner(place, effects);
            }
        }
    }

    /// Passes a unit's symbols to a responsibility and starts the unit.
    pub(crate) fn launch(&mut self, unit: Key, effects: &mut Effects) {
        if self.trackers.has_tentative() {
            self.end_displacements(unit, effects);
        }
        effects.launches.extend(self.set_off(unit));
    }

    /// Takes a unit with its symbols to be started. `None` if the thread that tells it about
    /// discarded symbols will start it. It has no displaced symbols.
    pub(super) fn set_off(&mut self, unit: Key) -> Option<Launching> {
        let cell = self.units.get_mut(unit)?;
        let dylib = cell.dylib;
        let init = cell.init;
        let mut symbols = std::mem::take(&mut cell.symbols);
        let maker = Maker::default();
        let responsibility = self.responsibilities.insert(ResponsibilityState {
            maker: Arc::clone(&maker),
            dylib,
            tracker: TrackerKey::NONE,
        });
        let mut tracker = TrackerKey::NONE;
        let state = self.dylibs.get_mut(&dylib)?;
        let shared = Arc::clone(&state.shared);
        symbols.retain(|(symbol, _)| {
            let entry = state.symbols.get_mut(symbol);
            let Some(entry) = entry.filter(|entry| entry.owner == Owner::Unit(unit)) else {
                return false;
            };
            entry.owner = Owner::Responsibility(responsibility);
            entry.state = SymbolState::Materializing;
            tracker = entry.tracker;
            true
        });
        if !self.stalled.is_empty() {
            for (symbol, _) in &symbols {
                self.stalled.remove(&(dylib, *symbol));
            }
        }
        if let Some(state) = self.responsibilities.get_mut(responsibility) {
            state.tracker = tracker;
        }
        if let Some(state) = self.trackers.get_mut(&tracker) {
            state.responsibilities.insert(responsibility);
        }
        let launch = Launch {
            maker,
            responsibility,
            shared,
            symbols,
            init,
        };
        let cell = self.units.get_mut(unit)?;
        let Some(taken) = cell.unit.take() else {
            cell.launch = Some(launch);
            return None;
        };
        let discards = std::mem::take(&mut cell.discards);
        self.units.remove(unit);
        Some((taken, discards, launch))
    }

    /// Fails lookups that wait for definitions on behalf of removed dylibs.
    pub(crate) fn give_up_waiting(&mut self, effects: &mut Effects) {
        let dylibs = &self.dylibs;
        let lost = self.waiting.take_lost(|job| !may_be_defined(dylibs, job));
        for (job, missing) in lost {
            let error = self.not_found(&job, missing);
            effects.finish(job, Err(error));
        }
    }

    /// Ends a lookup that waits for definitions, as its result cannot be read any more.
    pub(crate) fn end_wait(&mut self, key: Key, effects: &mut Effects) {
        if let Some((job, missing)) = self.waiting.take(key) {
            let error = self.not_found(&job, missing);
            effects.finish(job, Err(error));
        }
    }

    /// Ends all lookups that wait for definitions: no more will come.
    pub(crate) fn end_waits(&mut self, effects: &mut Effects) {
        for job in self.waiting.drain() {
            effects.finish(job, Err(SessionError::Ended));
        }
    }

    /// The short path of a lookup: one symbol, for a thread that waits, whose unit was not started
    /// yet. It is searched in `dylib`, and in its link order if `in_order`; `completion` is called
    /// only if a unit is started.
    ///
    /// It does the work of [`State::step`] for such a lookup, without the data of a lookup that may
    /// be suspended: a generator's queue, a wait for definitions, several symbols. Where one of those
    /// may be needed, it changes nothing, and the lookup takes the long path.
    pub(crate) fn take_short_way(
        &mut self,
        dylib: DylibId,
        in_order: bool,
        symbol: Symbol,
        completion: impl FnOnce() -> Completion,
    ) -> Short {
        // A unit with displaced symbols is told of them before it starts.
        if self.ended || self.trackers.has_tentative() {
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
}

/// Whether waiting for definitions makes sense: the first dylib of the order, for which the names are
/// looked up, still exists.
fn may_be_defined(dylibs: &DylibTable<DylibState>, job: &Job) -> bool {
    let first = job.order.first();
    first.is_some_and(|(dylib, _)| dylibs.get(dylib).is_some())
}
