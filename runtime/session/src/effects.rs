//! Effects outside of the lock of a change made under it.
//!
//! Functions on `State` only add to an `Effects`; `Effects::run` (`session/perform.rs`) performs
//! them after the lock was released. They do not depend on the order of the lists.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::SessionError;
use crate::flags::Flags;
use crate::generator::GeneratorCell;
use crate::job::{FlagsCompletion, FlagsResult, Job, Outcome};
use crate::lookup::{Completion, LookupResult};
use crate::resource::{Resource, TrackerEvent};
use crate::slab::Key;
use crate::state::Launch;
use crate::symbol::Symbol;
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

    /// Whether there is nothing to perform.
    pub(crate) fn is_empty(&self) -> bool {
        self.completions.is_empty() && self.launches.is_empty() && self.rare.is_none()
    }

    /// Takes the rare effects out, if there are any.
    pub(crate) fn take_rare(&mut self) -> Option<Box<Rare>> {
        self.rare.take()
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

    /// Resumes lookups.
    pub(crate) fn resume_all(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            self.resume(job);
        }
    }

    /// Fails the lookups in the queue of a generator that was removed.
    pub(crate) fn drop_generator(&mut self, mut cell: GeneratorCell, dylib: &Arc<str>) {
        for job in std::mem::take(&mut cell.line) {
            let dylib = Arc::clone(dylib);
            self.finish(job, Err(SessionError::GeneratorRemoved { dylib }));
        }
        self.rare().generators.push(cell);
    }
}
