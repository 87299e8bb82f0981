//! Effects outside of the lock of a change made under it.
//!
//! Functions on `State` only add to an `Effects`; `run` performs them after the lock was released.
//! They do not depend on the order of the lists. A panic in a callback of the embedder is reported,
//! and the other callbacks still run.

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

/// A unit that is to be materialized, with discards that it has not been told yet.
pub(crate) type Launching = (Box<dyn Unit>, Vec<Symbol>, Launch);

/// See the module text.
#[derive(Default)]
pub(crate) struct Effects {
    pub completions: SmallVec<[(Completion, Result<LookupResult, SessionError>); 1]>,
    pub launches: SmallVec<[Launching; 1]>,
    rare: Option<Box<Rare>>,
}

/// Effects that most changes do not have.
#[derive(Default)]
pub(crate) struct Rare {
    pub flags: Vec<(FlagsCompletion, FlagsResult)>,
    /// Dropped last of all.
    pub units: SmallVec<[Box<dyn Unit>; 1]>,
    /// Units to be told about discarded symbols, first of all.
    pub discards: Vec<Key>,
    pub resources: Vec<Box<dyn Resource>>,
    pub events: SmallVec<[TrackerEvent; 1]>,
    pub reports: Vec<SessionError>,
    pub jobs: Vec<Job>,
    pub generators: Vec<GeneratorCell>,
}

impl Effects {
    /// The rare effects, created on demand.
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

    /// Resumes a lookup.
    pub(crate) fn resume(&mut self, job: Job) {
        self.rare().jobs.push(job);
    }

    /// Fails the lookups in the queue of a generator that was removed.
    pub(crate) fn drop_generator(&mut self, mut cell: GeneratorCell, dylib: &Arc<str>) {
        for job in std::mem::take(&mut cell.line) {
            let dylib = Arc::clone(dylib);
            self.finish(job, Err(SessionError::GeneratorRemoved { dylib }));
        }
        self.rare().generators.push(cell);
    }

    /// Performs all effects; units go to the pool.
    pub(crate) fn run(self, session: &Session) {
        self.run_but_one(session, false);
    }

    /// Performs all effects; with `keep`, returns one unit for the caller to run.
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
