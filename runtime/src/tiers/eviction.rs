//! A budget for code, held by evicting what is not used: it is compiled again by its next call.
//!
//! What counts is code of IR functions that calls reach. All of it can be made again, from the bodies
//! that first calls are compiled from; code of object files and of units cannot, and is neither
//! counted nor evicted. Nor is code
//! - of functions that keep their first version (coroutines: frames hold addresses of its parts),
//! - that is pinned to a tier,
//! - of the function the program starts at: nobody calls it again,
//! - of functions that somebody compiles or replaces: the evicting thread would take away what they
//!   found there.
//!
//! # Who is cold
//! `uruk_tiering`'s [`Cold`] orders by last use. Use is seen in two ways, at every tier alike: a call
//! puts code that rests ([`StubTable::rest`](uruk_stubs::StubTable::rest)) into its slot again, and
//! samples fall into code that runs for long. Each look has all code rest, so a function that is called
//! pays less than a microsecond once per look; looks come as code does, ten for each budget, and none
//! below 60 % of it.
//!
//! # How it goes
//! An eviction is a replacement by nothing: under the lock of the function's versions the slot goes
//! back to the trampoline, the version is retired, and reclaim frees it once a scan saw every thread
//! without it. Whoever is inside finishes there; recursion, handlers and callers that come in between
//! ask for code as a first call does. The function's address is its stub's, so nothing that holds it
//! notices.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Eviction::state` | a look, and the evictions it leads to | the others, `TierState::control`, `Versions`, bodies |
//! | `Eviction::arrivals` | a publication is noted, or all are taken | nothing |
//! | `Eviction::away` | a function goes or comes back | nothing |
//!
//! Whoever publishes looks, after those who waited for it were woken. One looks at a time; who comes
//! meanwhile leaves a note and goes on, until the notes are [`LEFT`] of the budget: who comes then waits
//! for the look. So the budget is exceeded by that and by what is being published, at most, however
//! late the one who looks gets a processor. Events are told when nothing is locked.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tracing::debug;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_tiering::{Cold, Resident};

use crate::core::Core;
use crate::tiers::Control;
use crate::tiers::counts::Count;
use crate::told::event::Event;
use crate::told::evictions::EvictionStats;

/// Notes of code that came which are left for the next look, at most.
const ARRIVALS: usize = 256;

/// One part in so many of the budget may come while somebody looks, before others wait for that.
const LEFT: u64 = 20;

/// What a session knows of its budget.
pub(crate) struct Eviction {
    budget: Option<u64>,
    state: Mutex<State>,
    /// Code that came and that nobody looked at yet.
    arrivals: Mutex<Vec<(FunctionId, u64)>>,
    /// Bytes in `arrivals`. Relaxed: written under its lock.
    arrived: AtomicU64,
    /// Functions whose code is evicted.
    away: Mutex<HashSet<FunctionId>>,
    /// Somebody looks. Relaxed: whoever sees it late waits for the lock.
    looking: AtomicBool,
    /// Something was evicted, or was about to be. Relaxed: whoever compiles what was has seen its
    /// slot empty, which comes after.
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

/// A function whose code may go.
struct Candidate {
    id: FunctionId,
    version: VersionId,
    bytes: u64,
    samples: u64,
}

/// One that went.
struct Gone {
    id: FunctionId,
    version: VersionId,
    bytes: u64,
}

/// Who looks at cold code.
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

    /// The state, which knows of all that came.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self) -> MutexGuard<'_, HashSet<FunctionId>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a function that was removed.
    pub(crate) fn forget(&self, id: FunctionId) {
        self.away().remove(&id);
    }

    /// Whether nothing was evicted, and nothing is to be by itself.
    fn is_idle(&self) -> bool {
        self.budget.is_none() && !self.begun.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Says that calls of a function are about to reach new code; whether it had some that was
    /// evicted. Under a pass.
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

    /// Evicts what is over the budget, unless somebody is at it and can be left to it. Under a
    /// pass, with nothing locked.
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

    /// Evicts the coldest code until no more than `most` bytes are left; how many went.
    pub(crate) fn evict_down_to(self: &Arc<Self>, most: u64) -> u64 {
        let gone = self.look_for_cold(&mut self.eviction.state(), Some(most));
        self.tell_evicted(&gone);
        gone.iter().map(|one| one.bytes).sum()
    }

    /// Evicts one function's code now, if it may be; whether it was.
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

    /// The functions whose code may go.
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

    /// Takes the code of a function away, if nobody is at it.
    fn evict(self: &Arc<Self>, cold: &mut Cold, one: &Candidate) -> Option<Gone> {
        let id = one.id;
        let versions = self.tiers.versions.seen(id);
        // Before anybody can compile it again.
        self.eviction.away().insert(id);
        self.eviction.begun.store(true, Ordering::Relaxed);
        let gone = {
            // Whoever compiles it again tells the controller, after this.
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
    /// The code of a function is gone; the next one counts from zero.
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
