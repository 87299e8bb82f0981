//! A budget for code, held by evicting unused code: the next call compiles it again.
//!
//! Only code of IR functions that calls reach is counted. All of it can be made again, from the
//! bodies that first calls are compiled from. Code of object files and of units cannot, and is
//! neither counted nor evicted. Also excluded is code
//! - of functions that keep their first version (coroutines: frames hold addresses of its parts),
//! - that is pinned to a tier,
//! - of the function the program starts at: it is not called again,
//! - of functions that are being compiled or replaced: an eviction would take away the code that
//!   the compile or replacement found there.
//!
//! # Cold code
//! `uruk_tiering`'s [`Cold`] orders by last use. Use is detected in two ways, at every tier alike:
//! a call puts resting code ([`StubTable::rest`](uruk_stubs::StubTable::rest)) into its slot again,
//! and samples fall into code that runs for long. Each look puts all code to rest, so a function
//! that is called pays less than a microsecond once per look. Looks are made as code is published,
//! ten for each budget, and none below 60 % of it.
//!
//! # Eviction
//! An eviction is a replacement by nothing: under the lock of the function's versions the slot is
//! set to the trampoline, the version is retired, and reclaim frees it once a scan saw every thread
//! without it. Threads inside finish there; recursion, handlers and callers that come in between
//! request code as a first call does. The function's address is its stub's, so holders of the
//! address see no change.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Eviction::state` | a look, and the evictions it leads to | the others, `TierState::control`, `Versions`, bodies |
//! | `Eviction::arrivals` | a publication is noted, or all are taken | nothing |
//! | `Eviction::away` | a function goes or comes back | nothing |
//!
//! Each publisher looks, after the threads that waited for the publication were woken. One thread
//! looks at a time. Other publishers leave a note and go on, until the notes are [`LEFT`] of the
//! budget: later ones wait for the look. So the budget is exceeded at most by that and by the code
//! being published, however late the looking thread gets a processor. Events are reported when
//! nothing is locked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::debug;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_tiering::{Cold, Resident};

use crate::core::Core;
use crate::events::Event;
use crate::events::evictions::EvictionStats;
use crate::tiers::Control;
use crate::tiers::counts::Count;

/// Largest number of notes of new code that are left for the next look.
const ARRIVALS: usize = 256;

/// Publishers wait for a look in progress once new code exceeds the budget divided by this.
const LEFT: u64 = 20;

/// The state of a session's code budget.
pub(crate) struct Eviction {
    budget: Option<u64>,
    state: Mutex<State>,
    /// New code since the last look.
    arrivals: Mutex<Vec<(FunctionId, u64)>>,
    /// Bytes in `arrivals`. Relaxed: written under its lock.
    arrived: AtomicU64,
    /// Functions whose code is evicted.
    away: Mutex<HashSet<FunctionId>>,
    /// A look is in progress. Relaxed: a thread that sees it late waits for the lock.
    looking: AtomicBool,
    /// An eviction has begun at some time. Relaxed: a thread that compiles evicted code has seen
    /// its slot empty, which comes after.
    begun: AtomicBool,
    looks: AtomicU64,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    returned: AtomicU64,
}

struct State {
    cold: Cold,
    /// Samples of the versions that the last look found.
    samples: HashMap<FunctionId, (VersionId, u64)>,
}

/// A function whose code may be evicted.
struct Candidate {
    id: FunctionId,
    version: VersionId,
    bytes: u64,
    samples: u64,
}

/// A function whose code was evicted.
struct Gone {
    id: FunctionId,
    version: VersionId,
    bytes: u64,
}

/// Marks a look in progress until it is dropped.
struct Looking<'a>(&'a AtomicBool);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Eviction {
    pub(crate) fn new(budget: Option<u64>) -> Eviction {
        let zero = || AtomicU64::new(0);
        Eviction {
            budget,
            state: Mutex::new(State {
                cold: Cold::new(budget),
                samples: HashMap::new(),
            }),
            arrivals: Mutex::default(),
            arrived: zero(),
            away: Mutex::default(),
            looking: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            looks: zero(),
            evicted: zero(),
            evicted_bytes: zero(),
            returned: zero(),
        }
    }

    /// Counts at this moment.
    pub(crate) fn stats(&self) -> EvictionStats {
        // Relaxed: statistics.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EvictionStats {
            budget: self.budget,
            looks: get(&self.looks),
            evicted: get(&self.evicted),
            evicted_bytes: get(&self.evicted_bytes),
            returned: get(&self.returned),
        }
    }

    /// The state, with all new code noted.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let arrivals = {
            let mut arrivals = self.arrivals();
            self.arrived.store(0, Ordering::Relaxed);
            std::mem::take(&mut *arrivals)
        };
        for (id, bytes) in arrivals {
            state.cold.came(id, bytes);
        }
        state
    }

    fn arrivals(&self) -> MutexGuard<'_, Vec<(FunctionId, u64)>> {
        self.arrivals.lock()
    }

    fn away(&self) -> MutexGuard<'_, HashSet<FunctionId>> {
        self.away.lock()
    }

    /// Forgets a function that was removed.
    pub(crate) fn forget(&self, id: FunctionId) {
        self.away().remove(&id);
    }

    /// Whether nothing was evicted yet, and there is no budget.
    fn is_idle(&self) -> bool {
        self.budget.is_none() && !self.begun.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Notes that calls of a function are about to reach new code; returns whether it had code that
    /// was evicted. Under a pass.
    pub(crate) fn note_code(&self, id: FunctionId, bytes: u64) -> bool {
        let eviction = &self.eviction;
        if eviction.is_idle() {
            return false;
        }
        let mut arrivals = eviction.arrivals();
        arrivals.push((id, bytes));
        eviction.arrived.fetch_add(bytes, Ordering::Relaxed);
        let many = arrivals.len() >= ARRIVALS;
        drop(arrivals);
        if many {
            drop(eviction.state());
        }
        let returned = eviction.away().remove(&id);
        eviction
            .returned
            .fetch_add(u64::from(returned), Ordering::Relaxed);
        returned
    }

    /// Evicts code over the budget, unless another thread is doing so and little new code came.
    /// Under a pass, with nothing locked.
    pub(crate) fn keep_budget(self: &Arc<Self>) {
        let eviction = &self.eviction;
        let Some(budget) = eviction.budget else {
            return;
        };
        let busy = eviction.looking.swap(true, Ordering::Relaxed);
        if busy && eviction.arrived.load(Ordering::Relaxed) <= budget / LEFT {
            return;
        }
        let _looking = Looking(&eviction.looking);
        let mut state = eviction.state();
        if state.cold.is_due() {
            let gone = self.look_for_cold(&mut state, None);
            drop(state);
            self.tell_evicted(&gone);
        }
    }

    /// Evicts the coldest code until no more than `most` bytes are left; returns the number of
    /// functions.
    pub(crate) fn evict_down_to(self: &Arc<Self>, most: u64) -> u64 {
        let gone = self.look_for_cold(&mut self.eviction.state(), Some(most));
        self.tell_evicted(&gone);
        gone.iter().map(|one| one.bytes).sum()
    }

    /// Evicts one function's code now, if that is allowed; returns whether it did.
    pub(crate) fn evict_one(self: &Arc<Self>, id: FunctionId) -> bool {
        let gone = {
            let mut state = self.eviction.state();
            let found = self.candidates().into_iter().find(|one| one.id == id);
            found.and_then(|found| self.evict(&mut state.cold, &found))
        };
        self.tell_evicted(gone.as_slice());
        gone.is_some()
    }

    fn look_for_cold(self: &Arc<Self>, state: &mut State, most: Option<u64>) -> Vec<Gone> {
        self.eviction.looks.fetch_add(1, Ordering::Relaxed);
        let mut found: HashMap<FunctionId, Candidate> = HashMap::new();
        let mut residents = Vec::new();
        let before = std::mem::take(&mut state.samples);
        for one in self.candidates() {
            let sampled = before.get(&one.id).is_some_and(|&(version, samples)| {
                version != one.version || samples != one.samples
            });
            residents.push(Resident {
                function: one.id,
                bytes: one.bytes,
                used: sampled || !self.stubs.rests(one.id),
            });
            self.stubs.rest(one.id);
            state.samples.insert(one.id, (one.version, one.samples));
            found.insert(one.id, one);
        }
        let cold = state.cold.look(&residents, most).into_iter();
        let gone = cold.filter_map(|id| self.evict(&mut state.cold, found.get(&id)?));
        let gone: Vec<Gone> = gone.collect();
        let (functions, evicted) = (residents.len(), gone.len());
        debug!(functions, evicted, "looked for cold code");
        gone
    }

    /// The functions whose code may be evicted.
    fn candidates(&self) -> Vec<Candidate> {
        let mut all = self.tiers.versions.all_published(|id, version| {
            let id = self.stubs.function(id)?;
            Some(Candidate {
                id,
                version: version.id,
                bytes: version.bytes,
                samples: version.samples,
            })
        });
        all.retain(|one| {
            let stays = self.tiers.is_entry_point(one.id) || self.tiers.versions.is_fixed(one.id);
            !stays && self.function(one.id).is_some()
        });
        let control = self.tiers.control();
        all.retain(|one| {
            let view = control.controller.view(one.id);
            view.is_none_or(|view| view.pinned.is_none())
        });
        all
    }

    /// Evicts the code of a function, unless it is being compiled or replaced.
    fn evict(self: &Arc<Self>, cold: &mut Cold, one: &Candidate) -> Option<Gone> {
        let id = one.id;
        let versions = self.tiers.versions.seen(id);
        // Before another thread can compile it again.
        self.eviction.away().insert(id);
        self.eviction.begun.store(true, Ordering::Relaxed);
        let gone = {
            // A thread that compiles it again tells the controller, after this.
            let mut control = self.tiers.control();
            let gone = versions.evict(|| self.stubs.unpublish(id));
            if gone.is_some() {
                control.forget_code(id, &self.tiers.counts);
            }
            gone
        };
        let Some(gone) = gone else {
            self.eviction.away().remove(&id);
            return None;
        };
        for version in [Some(gone.version), gone.released].into_iter().flatten() {
            self.retire_version(id, version);
        }
        cold.went(id, one.bytes);
        let counters = &self.eviction;
        counters.evicted.fetch_add(1, Ordering::Relaxed);
        counters
            .evicted_bytes
            .fetch_add(one.bytes, Ordering::Relaxed);
        Some(Gone {
            id,
            version: gone.version,
            bytes: one.bytes,
        })
    }

    fn tell_evicted(&self, gone: &[Gone]) {
        for &Gone { id, version, bytes } in gone {
            self.events.tell(|| Event::Evicted {
                id,
                function: self.name_of(id),
                version: version.0,
                bytes,
                at: self.events.now(),
            });
        }
    }
}

impl Control {
    /// Drops the controller's data of evicted code; the next code counts from zero.
    fn forget_code(&mut self, id: FunctionId, counts: &super::counts::Counts) {
        let now = counts.now(id);
        if let Some(seen) = self.watched.seen(id) {
            *self.entries.entry(id).or_default() += u64::from(now.since(seen).entries);
        }
        counts.clear(id);
        self.watch(id, false, Count::default());
        self.controller.replaced(id);
    }
}
