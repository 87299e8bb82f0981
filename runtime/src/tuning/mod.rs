//! The tuner: functions that are hot get other codes of the same body, one after another, and
//! end at the one that makes the program fastest. What is measured and how it is judged is
//! [`uruk_tiering::tuning`]'s; here codes are made, take turns in a slot, and are timed.
//!
//! # A turn of the tuner's thread
//! 1. [`choose`]: who was sampled most since the last look, runs code of tier 2 or 3 that the
//!    policy is done with, and is entered neither too seldom nor too often to be timed, is a
//!    *root*. One at a time: what is measured is the time of all the program's threads, so a
//!    second trial would be noise in the first.
//! 2. [`count`]: where nothing was counted in it yet, or its load has changed since, code with probes
//!    runs for a moment: what arguments nearly always are is not known otherwise.
//! 3. [`candidate`]: the candidate that [`Advice`] proposes, or the plain code of tier 2 where
//!    what runs is tier 3's, or the other way round, is compiled and published; what ran stays as the version to go back
//!    to, and is kept while the function is [under trial](Tuning::holds).
//! 4. [`trial`]: the two take turns in the slot ([`FunctionVersions::alternate`]). Time per
//!    entry of the root, or per unit of work where the embedder tells that
//!    ([`Jit::work_done`](crate::Jit::work_done)), is the figure.
//! 5. The winner is in the slot, the loser goes to reclaim, and an event tells
//!    ([`Event::Tuned`](crate::Event::Tuned)). What won is how the function is compiled from then
//!    on, also at tier 3.
//!
//! All candidates are tried for large gains first ([`COARSE`]), and those that may have a small
//! one are tried for it once none is left. A root nothing is left to try on is *settled*; from then on its time per unit is watched, and
//! it is tried again when that drifts.
//!
//! # Why
//! - Entries are counted in the code, as at tier 1 ([`Counters::Entry`](uruk_codegen::Counters)):
//!   an increment without a branch, in code above tier 1 of a session that tunes. What is
//!   timed is what stays, so nothing has to be compiled again without the counter. A function
//!   that is entered more often than every [`SHORTEST`] is left alone, and counts nothing if that
//!   is known when it is compiled: its callers are roots too. Counting such ones, too, Rust's
//!   hash-mix took 11.7 to 12.9 ms an iteration instead of 10.1.
//! - A trial in which one version is published over by anybody else (a tier, a replacement, a pin,
//!   an eviction) is given up, and whatever is published then stays.
//! - Native code ([`Dylib::adopt`](crate::Dylib::adopt)) is the first candidate where there is any,
//!   whatever the budget says: what is slower than that goes back to it ([`native`]), and
//!   the next run knows ([`recall`]). Variants are tried on it from then on, as on other code.
//! - Code of a native program that is too short for the way to it goes home without a trial
//!   ([`short`]): a flat profile has dozens of such functions.
//! - Tier 1 is no candidate: what it has over tier 2 where it is faster is that nothing was
//!   inlined, and that is the first candidate.
//! - It is off unless asked for ([`JitBuilder::tune`](crate::JitBuilder::tune)): a trial runs code
//!   that may be slower, and results of floating-point code differ from one variant to another
//!   where the embedder allows contraction.
//!
//! # Figures
//! Measured on two processors. Ten kernels against the best of 55 ways to compile each (`bench --only
//! tuner`): 1.00 to 1.60 of it, 11 to 31 trials and 4 to 12 s each; with a load of 8 to 16 besides,
//! an earlier tuner was at 0.99 to 1.04 of the best of 52. A hundred trials of equal code (the
//! ignored test of `tests/tiers/tuning.rs`): none found a difference. The region that the policy alone leaves at 374 us an iteration ends at
//! 244 (demo `tiers`): packing pairs is what does not pay there.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Tuning::state` | something is looked up or noted | nothing |

mod candidate;
mod choose;
mod clock;
mod count;
mod native;
mod noted;
mod recall;
mod region;
mod short;
mod told;
mod trial;

pub use told::{TrialView, TuningStats, TuningUnit, TuningView};

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use tracing::error;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, Nanos, Tier, Variant};
use uruk_codegen::{Cancellation, Compile};
use uruk_tiering::tuning::{Account, Advice, Budget, Known, KnownNative, Progress, Rules};

use self::region::Region;
use crate::api::error::Error;
use crate::core::Core;
use crate::fork::{gate, panics, thread};

/// Time between two looks at who is hot.
const LOOK: Duration = Duration::from_millis(50);

/// The same, at most: while there is nothing to try it doubles up to this. What is settled is watched.
const LOOK_SETTLED: Duration = Duration::from_millis(200);

/// The same while nothing is hot that could be tuned.
const LOOK_MOST: Duration = Duration::from_millis(400);

/// Least time of the program per entry of a root. At 100 ns Rust's n-body, entered every 53 to 92 ns, was
/// left at vectors that make it take 23 ms instead of 13.
const SHORTEST: Nanos = Nanos(25);

/// Gains that are looked for at first. To refute that an interpreter's loop, entered every 20 ms, gains a
/// hundredth takes 70 pairs of slices, and 12 s; to refute a twentieth takes 5, and what gains a
/// quarter is found among 27 candidates in one run instead of ten.
const COARSE: f64 = 0.05;

/// Settings of the tuner.
#[derive(Debug, Clone, Default)]
pub(crate) struct TuneSettings {
    pub(crate) on: bool,
    /// Candidates are what runs already.
    pub(crate) same: bool,
    pub(crate) rules: Rules,
    /// What the embedder allows, if it said so.
    pub(crate) budget: Option<Budget>,
    /// What an earlier run learned, as text.
    pub(crate) before: Option<String>,
}

#[derive(Default)]
struct State {
    account: Account,
    advice: Advice,
    /// By fingerprint: what earlier runs knew, and what this one found out.
    known: BTreeMap<[u8; 16], Known>,
    /// The same, of functions that are not settled: how far earlier runs came.
    progress: BTreeMap<[u8; 16], Progress>,
    /// The same, of native code.
    natives: BTreeMap<[u8; 16], KnownNative>,
    /// And the tiers that functions without native code end at.
    tiers: BTreeMap<[u8; 16], Tier>,
    /// Functions that are entered too often to be timed.
    often: HashSet<u32>,
    /// By function that was sampled, how far it is brought up to that.
    rising: HashMap<u32, Rising>,
    /// Functions that an earlier run compared with their native code.
    compared: HashSet<u32>,
    /// Those of them that are compiled once they are sampled.
    early: HashSet<u32>,
    regions: HashMap<u32, Region>,
    /// By function, how it is compiled above tier 1.
    variants: HashMap<u32, Variant>,
    /// Who takes turns now.
    held: Option<FunctionId>,
    /// Ends the compile under way.
    cancel: Option<Cancellation>,
    /// Ended trials, and how many of them won.
    trials: u32,
    won: u32,
    /// Candidates that were code which was tried, or ran.
    equal: u32,
    drifted: u32,
    thread: Option<Thread>,
    /// What became of the text of an earlier run.
    before: Option<String>,
}

/// A function that an earlier run ended with above tier 1.
#[derive(Debug, Clone, Copy)]
struct Rising {
    /// The highest tier that was asked for.
    asked: Tier,
    /// The one it is to reach; no higher than tier 1 if nothing is known.
    to: Tier,
}

/// What a session knows of tuning.
pub(crate) struct Tuning {
    on: bool,
    same: bool,
    rules: Rules,
    state: Mutex<State>,
    /// Units of work the embedder told of.
    work: AtomicU64,
    /// LLVM took the thread down: there is no other.
    lost: AtomicBool,
}

impl Tuning {
    pub(crate) fn new(settings: &TuneSettings) -> Tuning {
        let mut state = State {
            account: Account::new(settings.budget.unwrap_or_default()),
            advice: Advice::new(0x7475_6e65),
            ..State::default()
        };
        if let (true, Some(text)) = (settings.on, &settings.before) {
            state.remember(text);
            // A quarter of a second is a large part of a run of a few.
            if !state.known.is_empty() && settings.budget.is_none() {
                state.account.forgo_credit();
            }
        }
        Tuning {
            on: settings.on,
            same: settings.same,
            rules: settings.rules,
            state: Mutex::new(state),
            work: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether two versions of `function` take turns: neither is given up.
    pub(crate) fn holds(&self, function: FunctionId) -> bool {
        self.on && self.state().held == Some(function)
    }

    /// Units of work were done.
    pub(crate) fn work_done(&self, units: u64) {
        // A statistic: nothing is ordered by it.
        self.work.fetch_add(units, Ordering::Relaxed);
    }

    /// Has a compile under way end soon.
    pub(crate) fn interrupt(&self) {
        if let Some(cancel) = &self.state().cancel {
            cancel.cancel();
        }
    }

    /// Wakes the thread, which looks whether the session is over.
    pub(crate) fn stop(&self) {
        self.interrupt();
        if let Some(thread) = &self.state().thread {
            thread.unpark();
        }
    }

    /// In the child of a fork: the thread is gone, and what was under trial stays as it is. Says
    /// what that was.
    pub(crate) fn after_fork_child(&self) -> Option<FunctionId> {
        let mut state = self.state();
        let held = state.held.take();
        state.cancel = None;
        state.thread = None;
        held
    }

    /// The body of a function is another one now.
    pub(crate) fn forget(&self, function: FunctionId) {
        if self.on {
            let mut state = self.state();
            state.regions.remove(&function.index());
            state.variants.remove(&function.index());
            state.compared.remove(&function.index());
            state.early.remove(&function.index());
            state.rising.remove(&function.index());
            state.often.remove(&function.index());
        }
    }
}

/// Starts the tuner's thread, if it is on.
pub(crate) fn start(core: &Arc<Core>) -> Result<(), Error> {
    if !core.tuning.on || !core.tiers.is_auto() {
        return Ok(());
    }
    thread::spawn(String::from("uruk-tune"), core.serving.work(core, tune))
}

fn tune(core: &Arc<Core>) {
    {
        let _pass = gate::enter();
        core.tuning.state().thread = Some(std::thread::current());
    }
    let mut looks = choose::Looks::default();
    let (mut panicked, mut wait) = (0, LOOK);
    while !core.is_stopping() && panicked < panics::LIMIT {
        std::thread::park_timeout(wait);
        if core.is_stopping() || core.tuning.lost.load(Ordering::Relaxed) {
            break;
        }
        // Each step takes a pass of its own: none is held while versions take turns.
        let mut found = choose::Found::Nothing;
        let panic = panics::contained(|| found = core.tune_once(&mut looks));
        wait = match found {
            choose::Found::Root => LOOK,
            choose::Found::Hot => (wait * 2).min(LOOK_SETTLED),
            choose::Found::Nothing => (wait * 2).min(LOOK_MOST),
        };
        let _pass = gate::enter();
        if let Some(panic) = panic {
            panicked += 1;
            let held = core.tuning.state().held;
            if let Some(id) = held {
                core.unhold(id);
            }
            error!(panic, "the tuner panicked");
        }
    }
    let _pass = gate::enter();
    drop(looks);
}

impl Core {
    /// The settings of a compile of `id`, as it turned out best for it.
    pub(crate) fn tuned(&self, id: FunctionId, how: Compile) -> Compile {
        match self.tuned_variant(id) {
            Some(variant) if how.tier > Tier::Baseline => how.varied(variant),
            _ => how,
        }
    }

    /// Whether code above tier 1 is to count its entries, so that it can be tuned. Of what is entered
    /// too often to be timed all are compared with native code.
    pub(crate) fn counts_for_tuning(&self, id: FunctionId) -> bool {
        if !self.tuning.on || self.has_native(id) {
            return self.tuning.on;
        }
        let time = self.tiers.control().controller.entry_time(id);
        let often = &mut self.tuning.state().often;
        if time.is_some_and(|time| time < SHORTEST) {
            often.insert(id.index());
        }
        !often.contains(&id.index())
    }

    /// What this run, or an earlier one, found best for `id`.
    fn tuned_variant(&self, id: FunctionId) -> Option<Variant> {
        if !self.tuning.on {
            return None;
        }
        if let Some(&variant) = self.tuning.state().variants.get(&id.index()) {
            return Some(variant);
        }
        if self.tuning.state().known.is_empty() {
            return None;
        }
        let fingerprint = self.fingerprint(id)?;
        let mut state = self.tuning.state();
        let variant = state.known.get(&fingerprint)?.variant;
        state.variants.insert(id.index(), variant);
        Some(variant)
    }

    /// What a function is known by from one run to the next.
    fn fingerprint(&self, id: FunctionId) -> Option<[u8; 16]> {
        let function = self.function(id)?;
        let bitcode = function.module.readers.bitcode();
        Some(bitcode.fingerprint(function.symbol))
    }
}
