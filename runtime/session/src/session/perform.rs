//! Changes of the state, and the effects that are performed after them, outside of the lock.
//!
//! A panic in a callback of the embedder is reported, and the other callbacks still run.

use uruk_base::locks::Covered;

use super::Session;
use crate::dylib::Dylib;
use crate::effects::{Effects, Launching, Rare};
use crate::resource::TrackerEvent;
use crate::responsibility::Responsibility;
use crate::slab::Key;
use crate::state::State;

impl Session {
    /// Changes the state, then performs the effects.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let result = change(&mut self.lock(), &mut effects);
        effects.run(self);
        result
    }

    /// Changes the state where no code of embedders may run; a task of the pool performs the
    /// effects. See [`Pool::put_off`](crate::Pool::put_off).
    pub(crate) fn change_later(&self, change: impl FnOnce(&mut State, &mut Effects)) {
        let mut effects = Effects::default();
        change(&mut self.lock(), &mut effects);
        if !effects.is_empty() {
            let session = self.clone();
            self.0.pool.put_off(move || {
                // The thread that runs it may lack a cover.
                let _covered = Covered::ensure();
                effects.run(&session);
            });
        }
    }

    pub(crate) fn tracker_event(&self, event: &TrackerEvent) {
        if let Some(hook) = &self.0.on_tracker_event {
            self.guarded(|| hook(event));
        }
    }

    /// Ends a responsibility without symbols.
    pub(crate) fn forget(&self, key: Key) {
        let mut state = self.lock();
        if let Some(gone) = state.responsibilities.remove(key)
            && let Some(tracker) = state.trackers.get_mut(&gone.tracker)
        {
            tracker.responsibilities.remove(&key);
        }
    }

    /// Tells a unit which of its symbols were discarded. Drops it if none is left, starts it if it
    /// was looked up meanwhile.
    pub(crate) fn tell_discards(&self, key: Key) {
        loop {
            let (mut unit, discards, dylib) = {
                let mut state = self.lock();
                let Some(cell) = state.units.get_mut(key) else {
                    return;
                };
                let Some(unit) = cell.unit.take() else { return };
                let discards = std::mem::take(&mut cell.discards);
                let id = cell.dylib;
                let dylib = state.dylib(id).map(|d| Dylib::new(self, &d.shared));
                (unit, discards, dylib)
            };
            if let Some(dylib) = dylib {
                self.guarded(|| discards.iter().for_each(|s| unit.discard(&dylib, *s)));
            }
            let mut state = self.lock();
            let Some(cell) = state.units.get_mut(key) else {
                drop(state);
                return;
            };
            if let Some(launch) = cell.launch.take() {
                let discards = std::mem::take(&mut cell.discards);
                state.units.remove(key);
                drop(state);
                let session = self.clone();
                let launching = (unit, discards, launch);
                return self.spawn(move || session.materialize(launching));
            }
            if cell.live == 0 && cell.discards.is_empty() {
                state.units.remove(key);
                drop(state);
                return;
            }
            cell.unit = Some(unit);
            if cell.discards.is_empty() {
                return;
            }
        }
    }

    /// Materializes a unit on this thread.
    pub(crate) fn materialize(&self, (mut unit, discards, launch): Launching) {
        let responsibility = Responsibility::new(self, launch);
        self.guarded(move || {
            if !discards.is_empty() {
                let dylib = responsibility.dylib();
                for symbol in discards {
                    unit.discard(&dylib, symbol);
                }
            }
            let _making = responsibility.making();
            unit.materialize(responsibility);
        });
    }
}

impl Effects {
    /// Performs all effects; units go to the pool.
    pub(crate) fn run(self, session: &Session) {
        self.run_but_one(session, false);
    }

    /// Performs all effects; with `keep`, returns one unit for the caller to run.
    pub(crate) fn run_but_one(mut self, session: &Session, keep: bool) -> Option<Launching> {
        let mut rare = self.take_rare();
        for unit in rare.iter_mut().flat_map(|rare| rare.discards.drain(..)) {
            session.tell_discards(unit);
        }
        for (completion, result) in self.completions.drain(..) {
            session.guarded(|| completion.tell(result));
        }
        if let Some(rare) = &mut rare {
            rare.run(session);
        }
        // The last one: a pool without workers runs the others here and now, so all run in the
        // order of the lookup.
        let kept = if keep { self.launches.pop() } else { None };
        for launching in self.launches.drain(..) {
            let shared = session.clone();
            session.spawn(move || shared.materialize(launching));
        }
        kept
    }
}

impl Rare {
    fn run(&mut self, session: &Session) {
        for (completion, result) in self.flags.drain(..) {
            session.guarded(|| completion(result));
        }
        for error in &self.reports {
            session.report(error);
        }
        for event in &self.events {
            session.tracker_event(event);
        }
        // The resource attached last is released first, as with destructors.
        for resource in self.resources.drain(..).rev() {
            session.guarded(|| resource.release());
        }
        for job in self.jobs.drain(..) {
            let shared = session.clone();
            let waiter = job.waiter().filter(|_| job.past);
            let work = move || {
                shared.run_job(job, false);
            };
            match waiter {
                Some(waiter) => session.pool().spawn_for(&waiter, work),
                None => session.spawn(work),
            }
        }
    }
}
