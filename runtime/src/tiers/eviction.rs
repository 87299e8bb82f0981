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

mod look;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_base::{FunctionId, VersionId};
use uruk_tiering::Cold;

use crate::events::evictions::EvictionStats;

/// Largest number of notes of new code that are left for the next look.
const ARRIVALS: usize = 256;

/// Publishers wait for a look in progress once new code exceeds the budget divided by this.
const LEFT: u64 = 20;

/// The state of a session's code budget.
pub(crate) struct Eviction {
    budget: Option<u64>,
    state: Mutex<EvictionState, ranks::EvictionState>,
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

struct EvictionState {
    cold: Cold,
    /// Samples of the versions that the last look found.
    samples: HashMap<FunctionId, (VersionId, u64)>,
}

/// A function whose code may be evicted.
struct EvictionCandidate {
    id: FunctionId,
    version: VersionId,
    bytes: u64,
    samples: u64,
}

/// A function whose code was evicted.
struct EvictedFunction {
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
            state: Mutex::new(EvictionState {
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
    fn state(&self) -> MutexGuard<'_, EvictionState> {
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
