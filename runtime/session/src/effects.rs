//! What a change under the lock causes outside of it.
//!
//! Functions on `State` only add to an `Effects`; `run` does what is in it after
//! the lock was given back. Nothing in it depends on the order of the lists. A callback of the
//! embedder that panics is reported, and keeps no other one from being called.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::SessionError;
use crate::flags::Flags;
use crate::generator::GeneratorCell;
use crate::job::{FlagsCompletion, FlagsResult, Job, Outcome};
use crate::lookup::{Completion, LookupResult};
use crate::session::Session;
use crate::slab::Key;
use crate::state::Launch;
use crate::symbol::Symbol;
use crate::tracker::{Resource, TrackerEvent};
use crate::unit::Unit;

/// A unit that goes to work, with what it was not told yet.
pub(crate) type Launching = (Box<dyn Unit>, Vec<Symbol>, Launch);

/// See the module text.
#[derive(Default)]
pub(crate) struct Effects {
    pub completions: SmallVec<[(Completion, Result<LookupResult, SessionError>); 1]>,
    pub launches: SmallVec<[Launching; 1]>,
    rare: Option<Box<Rare>>,
}

/// What most changes do not cause.
#[derive(Default)]
pub(crate) struct Rare {
    pub flags: Vec<(FlagsCompletion, FlagsResult)>,
    /// To be dropped, the last of all.
    pub units: SmallVec<[Box<dyn Unit>; 1]>,
    /// To be told about discarded symbols, the first of all.
    pub discards: Vec<Key>,
    pub resources: Vec<Box<dyn Resource>>,
    pub events: SmallVec<[TrackerEvent; 1]>,
    pub reports: Vec<SessionError>,
    pub jobs: Vec<Job>,
    pub generators: Vec<GeneratorCell>,
}

impl Effects {
    /// To add to what most changes do not cause.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Ends a lookup.
    pub(crate) fn finish(&mut self, job: Job, result: Result<LookupResult, SessionError>) {
        match job.outcome {
            Outcome::Addresses(completion) => self.completions.push((completion, result)),
            Outcome::Flags(completion) => {
                let result = result.map(|_| Vec::new());
                self.rare().flags.push((completion, result));
            }
        }
    }

    /// Ends a flags lookup.
    pub(crate) fn finish_flags(&mut self, job: Job, found: Vec<(Symbol, Flags)>) {
        if let Outcome::Flags(completion) = job.outcome {
            self.rare().flags.push((completion, Ok(found)));
        }
    }

    /// Takes a lookup up again.
    pub(crate) fn resume(&mut self, job: Job) {
        self.rare().jobs.push(job);
    }

    /// A generator was removed: those in its line are told.
    pub(crate) fn drop_generator(&mut self, mut cell: GeneratorCell, dylib: &Arc<str>) {
        for job in std::mem::take(&mut cell.line) {
            let dylib = Arc::clone(dylib);
            self.finish(job, Err(SessionError::GeneratorRemoved { dylib }));
        }
        self.rare().generators.push(cell);
    }

    /// Does everything; units go to the pool.
    pub(crate) fn run(self, session: &Session) {
        self.run_but_one(session, false);
    }

    /// Does everything, but with `keep` gives back one unit for the caller to
    /// run himself.
    pub(crate) fn run_but_one(mut self, session: &Session, keep: bool) -> Option<Launching> {
        let mut rare = self.rare.take();
        for unit in rare.iter_mut().flat_map(|rare| rare.discards.drain(..)) {
            session.tell_discards(unit);
        }
        for (completion, result) in self.completions.drain(..) {
            session.guarded(|| completion.tell(result));
        }
        if let Some(rare) = &mut rare {
            rare.run(session);
        }
        // The last: a pool without workers runs the others here and now, and so all of them in
        // the order of the question.
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
        // As destructors do: what was attached last goes first.
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
