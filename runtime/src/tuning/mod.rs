//! The tuner: it compiles the same body of a hot function in several variants, one after another,
//! and keeps the one that makes the program fastest. All decisions are made in
//! [`uruk_tiering::tuning`]; here variants are compiled, take turns in a slot, and are timed.
//!
//! # A turn of the tuner's thread
//! 1. [`choose`]: the function with most samples since the last check becomes a *root*. It must run
//!    code of tier 2 or 3 which the policy has finished with, and be entered neither too seldom nor
//!    too often to be timed. One at a time: the measure is the time of all the program's threads,
//!    so a second trial would be noise in the first.
//! 2. [`count`]: if it was not profiled yet, or its load has changed since, code with probes runs
//!    for a moment: typical values of arguments are not known otherwise.
//! 3. [`candidate`]: the candidate that [`Advice`] proposes is compiled and published, or the plain
//!    code of tier 2 in place of tier 3's, or the reverse. The previous version stays as the
//!    fallback, and is kept while the function is [under trial](Tuning::holds).
//! 4. [`trial`]: the two take turns in the slot ([`FunctionVersions::alternate`]). The measure is
//!    the time per entry of the root, or per unit of work where the embedder reports that
//!    ([`Jit::work_done`](crate::Jit::work_done)).
//! 5. The winner stays in the slot, the loser is reclaimed, and an event is sent
//!    ([`Event::Tuned`](crate::Event::Tuned)). The winning variant is used for the function from
//!    then on, also at tier 3.
//!
//! All candidates are first tried for large gains ([`Region`]), and those that may have a small one
//! are tried for it once no other is left. A root without candidates is *settled*; from then on its
//! time per unit is watched, and it is tried again when that drifts.
//!
//! # Why
//! - Entries are counted in the code, as at tier 1 ([`Counters::Entry`](uruk_codegen::Counters)):
//!   an increment without a branch, in code above tier 1 of a session that tunes. The timed code is
//!   the final code, so it need not be compiled again without the counter. A function that is
//!   entered more often than every [`SHORTEST`] is not tuned, and counts nothing if that is known
//!   when it is compiled: its callers are roots too. When such functions counted, too, Rust's
//!   hash-mix took 11.7 to 12.9 ms an iteration instead of 10.1.
//! - A trial is abandoned if another publication replaces one of its versions (a tier, a
//!   replacement, a pin, an eviction); the version published then stays.
//! - Native code ([`Dylib::adopt`](crate::Dylib::adopt)) is the first candidate where it exists,
//!   whatever the budget: slower code is replaced by it ([`native`]), and the next run knows
//!   ([`recall`]). Variants are tried over it from then on, as over other code.
//! - Code of a native program that is too short for the cost of its stub returns to native code
//!   without a trial ([`short`]): a flat profile has dozens of such functions.
//! - Tier 1 is no candidate: where it is faster than tier 2, the reason is that it inlines nothing,
//!   and that is the first candidate.
//! - It is off by default ([`JitBuilder::tune`](crate::JitBuilder::tune)): a trial runs code that
//!   may be slower, and results of floating-point code differ between variants where the embedder
//!   allows contraction.
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
mod short;
pub(crate) mod told;
mod trial;
pub(crate) mod views;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use tracing::error;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, Tier, Variant};
use uruk_codegen::{Cancellation, Compile};
use uruk_tiering::tuning::{
    Account, Advice, Known, KnownNative, Progress, Region, Rules, SHORTEST,
};

use crate::error::Error;
use crate::fork::gate;
use crate::fork::{panics, thread};
use crate::tiers::TierState;
use crate::tiers::settings::TuneSettings;
use std::ops::Deref;

/// Time between two checks for hot functions.
const LOOK: Duration = Duration::from_millis(50);

/// Maximal time between two checks: it doubles up to this while no candidate is left. Settled roots
/// are watched.
const LOOK_SETTLED: Duration = Duration::from_millis(200);

/// Maximal time between two checks while no hot function can be tuned.
const LOOK_MOST: Duration = Duration::from_millis(400);

#[derive(Default)]
struct TuningState {
    account: Account,
    advice: Advice,
    /// Results of earlier runs and of this one, by fingerprint.
    known: BTreeMap<[u8; 16], Known>,
    /// Progress of earlier runs with functions that are not settled, by fingerprint.
    progress: BTreeMap<[u8; 16], Progress>,
    /// Results for native code, by fingerprint.
    natives: BTreeMap<[u8; 16], KnownNative>,
    /// Final tiers of functions without native code, by fingerprint.
    tiers: BTreeMap<[u8; 16], Tier>,
    /// Functions that are entered too often to be timed.
    often: HashSet<u32>,
    /// Promotions to the tiers of an earlier run, by sampled function.
    rising: HashMap<u32, Rising>,
    /// Functions that an earlier run compared with their native code.
    compared: HashSet<u32>,
    /// Those of them that are compiled once they are sampled.
    early: HashSet<u32>,
    regions: HashMap<u32, Region>,
    /// Variants above tier 1, by function.
    variants: HashMap<u32, Variant>,
    /// The function whose versions take turns now.
    held: Option<FunctionId>,
    /// Cancels the compile in progress.
    cancel: Option<Cancellation>,
    /// Number of trials that ended, and of those won.
    trials: u32,
    won: u32,
    /// Number of candidates whose code was tried before, or is current.
    equal: u32,
    drifted: u32,
    thread: Option<Thread>,
    /// Whether the text of an earlier run was used.
    before: Option<String>,
}

/// A function that an earlier run left above tier 1.
#[derive(Debug, Clone, Copy)]
struct Rising {
    /// The highest tier that was requested.
    asked: Tier,
    /// The target tier; at most tier 1 if none is known.
    to: Tier,
}

/// The tuner's state in a session.
pub(crate) struct Tuning {
    on: bool,
    same: bool,
    rules: Rules,
    state: Mutex<TuningState>,
    /// Units of work that the embedder reported.
    work: AtomicU64,
    /// LLVM stopped the tuner's thread: there is no other.
    lost: AtomicBool,
    /// The layer below.
    pub(crate) tiers: Arc<TierState>,
    end: gate::End,
}

/// The layer below.
impl Deref for Tuning {
    type Target = Arc<TierState>;

    fn deref(&self) -> &Arc<TierState> {
        &self.tiers
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Tuning {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Tuning {
    pub(crate) fn new(settings: &TuneSettings, tiers: Arc<TierState>) -> Arc<Tuning> {
        let mut state = TuningState {
            account: Account::new(settings.budget.unwrap_or_default()),
            advice: Advice::new(0x7475_6e65),
            ..TuningState::default()
        };
        if let (true, Some(text)) = (settings.on, &settings.before) {
            state.remember(text);
            // The initial credit of a quarter of a second is a large part of a run of a few.
            if !state.known.is_empty() && settings.budget.is_none() {
                state.account.forgo_credit();
            }
        }
        Arc::new(Tuning {
            on: settings.on,
            same: settings.same,
            rules: settings.rules,
            state: Mutex::new(state),
            work: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            tiers,
            end: gate::End::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, TuningState> {
        self.state.lock()
    }

    /// Whether two versions of `function` take turns: neither may be retired.
    pub(crate) fn holds(&self, function: FunctionId) -> bool {
        self.on && self.state().held == Some(function)
    }

    /// Adds units of completed work.
    pub(crate) fn work_done(&self, units: u64) {
        // Relaxed: a statistic; it orders nothing.
        self.work.fetch_add(units, Ordering::Relaxed);
    }

    /// Cancels a compile in progress.
    pub(crate) fn interrupt(&self) {
        if let Some(cancel) = &self.state().cancel {
            cancel.cancel();
        }
    }

    /// Wakes the thread, which checks whether the session ends.
    pub(crate) fn stop(&self) {
        self.interrupt();
        if let Some(thread) = &self.state().thread {
            thread.unpark();
        }
    }

    /// Resets the tuner in the child of a fork: the thread does not exist, and the function under
    /// trial stays as it is. Returns that function.
    pub(crate) fn after_fork_child(&self) -> Option<FunctionId> {
        let mut state = self.state();
        let held = state.held.take();
        state.cancel = None;
        state.thread = None;
        held
    }

    /// Drops the state of a function whose body was replaced.
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
pub(crate) fn start(tuning: &Arc<Tuning>) -> Result<(), Error> {
    if !tuning.on || !tuning.choices.is_auto() {
        return Ok(());
    }
    thread::spawn(
        String::from("uruk-tune"),
        tuning.serving.work(tuning, tuning.engines(), tune),
    )
}

fn tune(tuning: &Arc<Tuning>) {
    {
        let _pass = gate::enter();
        tuning.state().thread = Some(std::thread::current());
    }
    let mut looks = choose::Looks::default();
    let (mut panicked, mut wait) = (0, LOOK);
    while !tuning.is_stopping() && panicked < panics::LIMIT {
        std::thread::park_timeout(wait);
        if tuning.is_stopping() || tuning.lost.load(Ordering::Relaxed) {
            break;
        }
        // Each step takes a pass of its own: none is held while versions take turns.
        let mut found = choose::CheckResult::Nothing;
        let panic = panics::contained(|| found = tuning.tune_once(&mut looks));
        wait = match found {
            choose::CheckResult::Root => LOOK,
            choose::CheckResult::Hot => (wait * 2).min(LOOK_SETTLED),
            choose::CheckResult::Nothing => (wait * 2).min(LOOK_MOST),
        };
        let _pass = gate::enter();
        if let Some(panic) = panic {
            panicked += 1;
            let held = tuning.state().held;
            if let Some(id) = held {
                tuning.unhold(id);
            }
            error!(panic, "the tuner panicked");
        }
    }
    let _pass = gate::enter();
    drop(looks);
}

impl Tuning {
    /// The settings of a compile of `id`, with the variant that was best for it.
    pub(crate) fn tuned(&self, id: FunctionId, how: Compile) -> Compile {
        match self.tuned_variant(id) {
            Some(variant) if how.tier > Tier::Baseline => how.varied(variant),
            _ => how,
        }
    }

    /// Whether code above tier 1 must count its entries, so that it can be tuned. Functions entered
    /// too often to be timed are still compared with native code if they have any.
    pub(crate) fn counts_for_tuning(&self, id: FunctionId) -> bool {
        if !self.on || self.has_native(id) {
            return self.on;
        }
        let time = self.tiers.control().controller.entry_time(id);
        let often = &mut self.state().often;
        if time.is_some_and(|time| time < SHORTEST) {
            often.insert(id.index());
        }
        !often.contains(&id.index())
    }

    /// The best variant for `id` in this run, or an earlier one.
    fn tuned_variant(&self, id: FunctionId) -> Option<Variant> {
        if !self.on {
            return None;
        }
        if let Some(&variant) = self.state().variants.get(&id.index()) {
            return Some(variant);
        }
        if self.state().known.is_empty() {
            return None;
        }
        let fingerprint = self.fingerprint(id)?;
        let mut state = self.state();
        let variant = state.known.get(&fingerprint)?.variant;
        state.variants.insert(id.index(), variant);
        Some(variant)
    }

    /// The key of a function in the results that pass from one run to the next.
    fn fingerprint(&self, id: FunctionId) -> Option<[u8; 16]> {
        let function = self.function(id)?;
        let bitcode = function.module.readers.bitcode();
        Some(bitcode.fingerprint(function.symbol))
    }
}
