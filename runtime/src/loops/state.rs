//! The state of a session's continuations: watched loops, offers, prohibitions and statistics.

use crate::code::loops::Ended;
use crate::code::loops::Loops;
use crate::code::module::Module;
use crate::fork::gate;
use crate::load::loader::Loader;
use crate::loops::list::List;
use crate::loops::stats::ContinuationStats;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_codegen::{Heads, Reason};

/// The state of a session's continuations.
pub(crate) struct Continuations {
    watched: Mutex<List, ranks::ContinuationsWatched>,
    pub(crate) ended: Arc<Ended>,
    /// Stubs of removed continuations.
    free: Mutex<Vec<FunctionId>>,
    /// Loops that cannot be left, by reason.
    refused: Mutex<HashMap<Reason, u64>>,
    /// Functions of which no loop can be left, by index, with the first reason.
    stuck: Mutex<HashMap<u32, Reason>>,
    /// Functions for which continuations are forbidden, by index.
    forbidden: Mutex<HashSet<u32>, ranks::ContinuationsForbidden>,
    /// Continuations that were offered.
    offered: AtomicU64,
    /// How often loops of freed versions were left.
    pub(crate) gone: Arc<AtomicU64>,
    /// The layer below, which holds all layers below it.
    pub(crate) loader: Arc<Loader>,
    end: gate::End,
}

/// The layer below.
impl Deref for Continuations {
    type Target = Arc<Loader>;

    fn deref(&self) -> &Arc<Loader> {
        &self.loader
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Continuations {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Continuations {
    /// The state of a session with this loader.
    pub(crate) fn new(loader: Arc<Loader>) -> Arc<Continuations> {
        Arc::new(Continuations {
            watched: Mutex::default(),
            ended: Arc::default(),
            free: Mutex::default(),
            refused: Mutex::default(),
            stuck: Mutex::default(),
            forbidden: Mutex::default(),
            offered: AtomicU64::new(0),
            gone: Arc::default(),
            loader,
            end: gate::End::default(),
        })
    }

    /// Counts a continuation that was offered.
    pub(super) fn count_offer(&self) {
        self.offered.fetch_add(1, Ordering::Relaxed);
    }

    /// A free stub of a removed continuation.
    pub(super) fn take_free(&self) -> Option<FunctionId> {
        self.free.lock().pop()
    }

    /// Keeps the stub of a removed continuation.
    pub(super) fn give_free(&self, id: FunctionId) {
        self.free.lock().push(id);
    }

    pub(crate) fn watched(&self) -> MutexGuard<'_, List> {
        self.watched.lock()
    }

    /// Stops all offers to running versions of a function, except to versions compiled from its
    /// body in `module`, if there is one.
    pub(crate) fn settle(&self, function: FunctionId, module: Option<&Arc<Module>>) {
        for loops in self.of(function) {
            let is_current = module.is_some_and(|module| loops.of.is_in(module));
            match is_current {
                true => loops.open(),
                false => loops.close(),
            }
        }
    }

    /// Forgets a removed function: nothing is offered to its running versions. A prohibition
    /// concerned this function, not a later one with its name.
    pub(crate) fn forget(&self, function: FunctionId) {
        for loops in self.of(function) {
            loops.give_up();
        }
        self.forbidden().remove(&function.index());
        self.stuck().remove(&function.index());
    }

    /// Makes heads note no time any more, for which they would read the processor's cycle counter.
    pub(crate) fn end_times(&self) {
        let all = self.watched().all();
        all.iter().for_each(|loops| loops.note_times(false));
    }

    /// Functions of which no loop can be left.
    pub(crate) fn stuck(&self) -> MutexGuard<'_, HashMap<u32, Reason>> {
        self.stuck.lock()
    }

    /// Counts loops of a function that are not counted at their heads, and notes it if none is.
    pub(crate) fn refuse(&self, function: FunctionId, heads: &Heads) {
        self.refuse_late(function, heads, !heads.counted.is_empty());
    }

    /// Counts loops of a function that cannot be left, and notes it unless `some` can.
    pub(crate) fn refuse_late(&self, function: FunctionId, heads: &Heads, some: bool) {
        let refused = &heads.refused;
        if let (Some(&(reason, _)), false) = (refused.first(), some) {
            self.stuck().insert(function.index(), reason);
        }
        if refused.is_empty() {
            return;
        }
        let mut all = self.refused.lock();
        for &(reason, loops) in refused.iter() {
            *all.entry(reason).or_default() += u64::from(loops);
        }
    }

    /// Forgets requests in the child of a fork: no requested continuation will be made there.
    pub(crate) fn after_fork_child(&self) {
        self.watched()
            .each(crate::loops::watch::WatchedLoops::forget);
    }

    pub(crate) fn forbidden(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.forbidden.lock()
    }

    /// How often heads of loops of a function were passed, as counted by the versions that still
    /// exist.
    pub(crate) fn passes(&self, function: FunctionId) -> u64 {
        let of = self.of(function);
        let all = of.iter().map(|loops| loops.passes());
        all.sum()
    }

    /// The loops of all versions of a function, and of its continuations.
    pub(crate) fn of(&self, function: FunctionId) -> Vec<Arc<Loops>> {
        self.watched().of(function)
    }

    /// The statistics so far.
    pub(crate) fn stats(&self) -> ContinuationStats {
        // The last reference to a version's loops is dropped without the lock.
        let living = self.watched().all();
        let living: u64 = living.iter().map(|loops| loops.left()).sum();
        let refused = self.refused.lock();
        let mut refused: Vec<_> = refused.iter().map(|(&why, &loops)| (why, loops)).collect();
        refused.sort_unstable_by_key(|&(why, loops)| (std::cmp::Reverse(loops), why));
        ContinuationStats {
            offered: self.offered.load(Ordering::Relaxed),
            left: living + self.gone.load(Ordering::Relaxed),
            refused,
        }
    }
}
