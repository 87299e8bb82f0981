//! On-stack replacement of running loops by better code: continuations, and the choice of loops.
//!
//! Code of tier 1 counts at the heads of its loops, and leaves them for the continuation offered
//! there (`uruk_codegen`, which makes both ends). A continuation is a function without a name: it
//! has a stub, versions, samples, a place in reclaim and in every tool, as others have. The offer
//! to a version of tier 1 is the address of that stub.
//!
//! | file | does |
//! |---|---|
//! | [`words`] | the words of one version's loops: counts, and the offers |
//! | [`list`] | the loops of all versions, and which were passed since the last look |
//! | [`offer`] | a loop's continuation: made, offered, and taken back |
//! | [`watch`] | which loop is to be left, by the counts |
//! | [`ask`] | requests of embedders |
//! | [`stats`] | statistics |
//!
//! # Lifetime
//! A version of tier 1 holds the words of its loops until it is freed, when no frame of it is left;
//! then its continuations are removed. So a frame that has read an offer can call it however late,
//! and a frame of a continuation has one of tier 1 below it. When a function is replaced or
//! removed, its loops are closed: nothing is offered any more, except, on request, continuations in
//! the body that replaced this one (`replace/loops.rs`). Such a continuation is of tier 1 and has
//! loops of its own, which belong to the function.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Offers` | a continuation is noted, offered or taken back | nothing |
//! | `Continuations::forbidden` | the list is read or changed, and while a continuation is offered | `Offers` |
//! | `Continuations::watched` | loops are watched | `Offers`, `Ended` |
//! | `Ended` | ids are put or taken | nothing |

mod ask;
mod list;
pub(crate) mod offer;
mod stats;
pub(crate) mod watch;
pub(crate) mod words;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::{Heads, Reason, Start};

use crate::core::Module;

use list::List;
pub use stats::ContinuationStats;
use words::Loops;

/// The start of a continuation, and its function.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) loops: Weak<Loops>,
    /// The function that the loop belongs to.
    pub(crate) whose: FunctionId,
    /// The loop's index among those of its version.
    pub(crate) place: usize,
    pub(crate) start: Start,
}

/// Freed versions and continuations without callers, until they are cleaned up.
pub(crate) type Ended = Mutex<Gone>;

/// See [`Ended`].
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// Continuations whose last caller is freed.
    continuations: Vec<FunctionId>,
    /// Functions with a freed version that had loops.
    versions: Vec<FunctionId>,
}

/// The state of a session's continuations.
#[derive(Default)]
pub(crate) struct Continuations {
    watched: Mutex<List>,
    ended: Arc<Ended>,
    /// Stubs of removed continuations.
    free: Mutex<Vec<FunctionId>>,
    /// Loops that cannot be left, by reason.
    refused: Mutex<HashMap<Reason, u64>>,
    /// Functions of which no loop can be left, by index, with the first reason.
    stuck: Mutex<HashMap<u32, Reason>>,
    /// Functions for which continuations are forbidden, by index.
    forbidden: Mutex<HashSet<u32>>,
    /// Continuations that were offered.
    offered: AtomicU64,
    /// How often loops of freed versions were left.
    gone: Arc<AtomicU64>,
}

impl Continuations {
    fn watched(&self) -> MutexGuard<'_, List> {
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

    /// Functions of which no loop can be left.
    pub(crate) fn stuck(&self) -> MutexGuard<'_, HashMap<u32, Reason>> {
        self.stuck.lock()
    }

    /// Counts loops of a function that cannot be left, and notes it if no loop can.
    pub(crate) fn refuse(&self, function: FunctionId, heads: &Heads) {
        let refused = &heads.refused;
        if let (Some(&(reason, _)), true) = (refused.first(), heads.counted.is_empty()) {
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

    /// In the child of a fork: no requested continuation will be made.
    pub(crate) fn after_fork_child(&self) {
        self.watched().each(watch::Watched::forget);
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
