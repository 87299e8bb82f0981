//! Reclaim: the thread that steps `uruk_reclaim`'s engine, and the notes that it gets.
//!
//! A thread that publishes or removes code leaves a note ([`Notes`](crate::code::notes::Notes)) and goes on; one thread
//! applies the notes, scans, moves and frees (`environment`). It is started when the first code is
//! retired, so a program whose functions never change has none.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Notes::inbox` | a note is put or taken | nothing |
//! | `Reclaim::state` | a step of the engine, a reading of statistics | a function's versions, `Versions::records`, `CodeDirectory::bodies`, the sampler |
//!
//! All of it is locked under a pass of the gate (`fork::gate`), so that no fork happens
//! meanwhile; between steps the pass is given back.

mod environment;
#[cfg(test)]
mod fork_tests;
mod notes;
mod registered;
mod scan;
mod shared;
mod stays;

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tracing::{debug, error, warn};
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_base::{FunctionId, VersionId};
use uruk_heap::HeapError;
use uruk_reclaim::{BlockId, Config, Engine, Kind, Nanos, Step};
use uruk_roots::Roots;

use crate::code::blocks::View;
use crate::code::notes::Note;
use crate::fork::gate;
use crate::fork::panics;
use crate::host::clock::clock;
use crate::tuning::Tuning;
use std::ops::Deref;

use environment::ReclaimState;
use notes::apply;
pub use registered::RegisteredStack;
use stays::Stays;

/// How long notes gather, unless a thread waits for a cycle.
const GATHER: Duration = Duration::from_millis(5);

/// How long a compile that found no memory waits for a cycle.
const FOR_MORE: Duration = Duration::from_secs(2);

/// How long a scan waits for a running thread that has the signal blocked.
const PATIENCE: Duration = Duration::from_millis(2);

/// How often a thread that waits for a cycle looks.
const LOOK: Duration = Duration::from_micros(200);

/// How long a version stays that its function may revert to. A new version is judged in its first
/// moments.
const KEPT: Duration = Duration::from_secs(5);

/// Freed blocks of code after which a new thread continues. The C library keeps what a thread frees in
/// a list of that thread, until the thread allocates or ends, and `uruk live` makes these lists long
/// (4,096 blocks of a size). This thread frees what other threads allocate: the lists would grow by 4 KB
/// with each exchange. Of 64 blocks they are under 300 KB. Starting a thread takes at most 100 us.
const RENEWED_AFTER: u64 = 64;

/// State of the memory of a session's code.
pub(crate) struct Reclaim {
    state: Mutex<ReclaimerState, ranks::ReclaimState>,
    /// Requests up to this one are done.
    answered: AtomicU64,
    /// Why no code is freed, if that is so.
    stays: Stays,
    /// Made when it is first needed: it occupies a signal.
    roots: OnceLock<Roots>,
    /// The layer below.
    pub(crate) tuning: Arc<Tuning>,
    end: gate::End,
}

/// The layer below.
impl Deref for Reclaim {
    type Target = Arc<Tuning>;

    fn deref(&self) -> &Arc<Tuning> {
        &self.tuning
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Reclaim {
    fn drop(&mut self) {
        self.end.begin();
    }
}

struct ReclaimerState {
    engine: Engine,
    hands: ReclaimState,
    /// When to give up the versions that these replaced; earliest first.
    aging: VecDeque<(Duration, FunctionId, VersionId)>,
}

impl Reclaim {
    pub(crate) fn new(config: &Config, tuning: Arc<Tuning>) -> Arc<Reclaim> {
        Arc::new(Reclaim {
            state: Mutex::new(ReclaimerState {
                engine: Engine::new(config, 0),
                hands: ReclaimState::default(),
                aging: VecDeque::new(),
            }),
            answered: AtomicU64::new(0),
            stays: Stays::default(),
            roots: OnceLock::new(),
            tuning,
            end: gate::End::default(),
        })
    }

    /// Whether a thread waits for a cycle.
    fn is_waited_for(&self) -> bool {
        let _pass = gate::enter();
        self.answered.load(Ordering::Relaxed) < self.notes.tickets()
    }

    /// Whether no code is freed any more.
    fn keeps_all(&self) -> bool {
        self.stays.is_for_good()
    }

    fn state(&self) -> MutexGuard<'_, ReclaimerState> {
        self.state.lock()
    }

    /// In the child of a fork: no thread of the runtime is left.
    pub(crate) fn after_fork_child(&self) {
        self.notes.after_fork_child();
        let mut state = self.state();
        state.hands.generation += 1;
        uruk_roots::note_fork();
        if let Some(roots) = self.roots.get() {
            roots.after_fork_child();
        }
    }

    /// In the parent of a fork: the code that the child inherited is shared with it.
    pub(crate) fn after_fork_parent(&self) {
        self.state().hands.generation += 1;
    }
}

impl Reclaim {
    /// Starts the thread, once it has work.
    pub(crate) fn start_reclaim(self: &Arc<Self>) {
        if !self.notes.begin_start() {
            return;
        }
        if let Err(cause) = self.spawn_reclaim() {
            self.notes.fail_start();
            warn!(%cause, "no thread to reclaim code with: it stays");
        }
    }

    fn spawn_reclaim(self: &Arc<Self>) -> Result<(), impl Display> {
        let name = String::from("uruk-reclaim");
        crate::fork::thread::spawn(name, self.serving.work(self, self.engines(), run))
    }

    /// Requests a cycle and waits until it is done, at most for `limit`; returns whether it is.
    pub(crate) fn reclaim_now(self: &Arc<Self>, kind: Kind, limit: Duration) -> bool {
        let reclaim = self;
        let ticket = {
            let _pass = gate::enter();
            let ticket = self.notes.request(kind);
            self.start_reclaim();
            self.notes.wake();
            ticket
        };
        let start = Instant::now();
        while reclaim.answered.load(Ordering::Acquire) < ticket {
            if start.elapsed() > limit || reclaim.keeps_all() || self.is_stopping() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Called after an allocation failed; returns whether another try is worth it.
    pub(crate) fn reclaim_for_more(self: &Arc<Self>, cause: &HeapError) -> bool {
        let full = matches!(
            cause,
            HeapError::OutOfSpace { .. } | HeapError::Limit { .. }
        );
        let wanted = self.notes.has_work();
        full && wanted && self.reclaim_now(Kind::Evacuate, FOR_MORE)
    }

    /// Statistics of the memory of code.
    pub(crate) fn reclaim_stats(&self) -> uruk_reclaim::Stats {
        let now = self.reclaim_now_time();
        let mut state = self.state();
        self.read_notes(&mut state, now);
        state.engine.stats(now)
    }

    fn reclaim_now_time(&self) -> Nanos {
        Nanos(u64::try_from(self.events.now().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The main function of the thread.
fn run(reclaim: &Arc<Reclaim>) {
    {
        let _pass = gate::enter();
        reclaim.notes.serve_here();
    }
    let mut freed = 0;
    while !reclaim.is_stopping() {
        let step = {
            let _pass = gate::enter();
            let stepped = || {
                let step = reclaim.step();
                reclaim.remove_ended();
                Ok(step)
            };
            panics::caught(stepped).unwrap_or_else(|cause| {
                error!(%cause, "reclaiming panicked: code stays from now on");
                // The engine's data may be wrong.
                reclaim.keep_code("the thread that frees code panicked");
                Step::Idle { until: None }
            })
        };
        match step {
            Step::Working => {}
            Step::Finished(summary) => {
                freed += summary.freed.blocks;
                // Without room for another thread this one continues.
                if freed >= RENEWED_AFTER && reclaim.spawn_reclaim().is_ok() {
                    return;
                }
            }
            Step::Idle { until } => {
                sleep_until(reclaim, until);
                let waits = reclaim.is_waited_for();
                if !waits && !reclaim.is_stopping() {
                    std::thread::park_timeout(GATHER);
                }
            }
        }
    }
}

/// Sleeps until `until`, or until there is a note, or the session ends.
fn sleep_until(reclaim: &Reclaim, until: Option<Nanos>) {
    let sleep = || match until {
        Some(until) => {
            let left = until - reclaim.reclaim_now_time();
            std::thread::park_timeout(Duration::from_nanos(left.0));
        }
        None => std::thread::park(),
    };
    reclaim.notes.sleep_unless(|| reclaim.is_stopping(), sleep);
}

impl Reclaim {
    /// Ends the thread, after [`Reclaim::is_stopping`] became true.
    pub(crate) fn stop_reclaim(&self) {
        self.notes.wake_at_end();
    }

    /// Applies notes and takes one step of the engine.
    fn step(self: &Arc<Self>) -> Step {
        let now = self.reclaim_now_time();
        let before = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut state = self.state();
        self.read_notes(&mut state, now);
        if self.keeps_all() {
            drop(state);
            self.tell_of_staying();
            return Step::Idle { until: None };
        }
        let ReclaimerState {
            engine,
            hands,
            aging,
        } = &mut *state;
        while let Some(&(due, function, version)) = aging.front()
            && due.as_nanos() as u64 <= now.0
        {
            aging.pop_front();
            self.give_up_fallback(function, version);
        }
        let mut step = engine.step(&mut hands.with(self), now);
        if let (Step::Idle { until }, Some((due, ..))) = (&mut step, aging.front()) {
            let due = Nanos(due.as_nanos() as u64);
            *until = Some(until.map_or(due, |until| until.min(due)));
        }
        let spent = clock(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(before);
        engine.charge(Nanos(spent.as_nanos() as u64));
        if let Step::Finished(summary) = &step {
            debug!(?summary, "a cycle of reclaim ended");
            self.answered.fetch_max(summary.answered, Ordering::Release);
            let failed = match &summary.end {
                uruk_reclaim::End::NoProof(cause) => Some(cause.to_string()),
                _ => None,
            };
            self.stays.cycle(failed);
            drop(state);
            self.tell_of_staying();
        }
        step
    }
}

impl Reclaim {
    fn read_notes(&self, state: &mut ReclaimerState, now: Nanos) {
        for note in self.notes.take() {
            match note {
                Note::Superseded(function, version) => {
                    let due = self.events.now() + KEPT;
                    state.aging.push_back((due, function, version));
                }
                note => apply(&mut state.engine, &mut state.hands.table, note, now),
            }
        }
    }

    /// The bytes of a version and the address of its first; also of versions that were
    /// freed, while a run is recorded.
    pub(crate) fn code_of(&self, version: VersionId) -> Option<(u64, Vec<u8>)> {
        let mut state = self.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        state.hands.code_of(version)
    }

    /// The results of `each` for each block of code, also retired and not yet freed ones. It also
    /// gets the block that calls of its version reach.
    pub(crate) fn of_all_code<T>(
        &self,
        mut each: impl FnMut(BlockId, Option<BlockId>, View<'_>) -> T,
    ) -> Vec<T> {
        let mut state = self.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        let table = &state.hands.table;
        let all = table.iter().map(|(id, view)| {
            let live = table.live(view.shape.version).map(|(id, _)| id);
            each(id, live, view)
        });
        all.collect()
    }

    /// All machine code of functions that `wanted` accepts, also retired and not yet freed.
    pub(crate) fn code_of_functions(
        &self,
        wanted: impl Fn(FunctionId) -> bool,
    ) -> Vec<(Range<u64>, FunctionId, BlockId)> {
        let mut state = self.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        let code = state.hands.table.iter().filter_map(|(id, code)| {
            let function = code.shape.function?;
            wanted(function).then(|| (code.text(), function, id))
        });
        code.collect()
    }

    /// All machine code of `members`, and of functions whose code took bodies or facts from them,
    /// also retired and not yet freed, of versions that `wanted` accepts; each piece once.
    pub(crate) fn code_concerning(
        &self,
        members: &HashSet<FunctionId>,
        wanted: impl Fn(VersionId) -> bool,
    ) -> Vec<(Range<u64>, FunctionId, BlockId)> {
        let mut state = self.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        let code = state.hands.table.concerning(members.iter().copied());
        let code = code.filter(|(_, code)| wanted(code.shape.version));
        code.filter_map(|(id, code)| Some((code.text(), code.shape.function?, id)))
            .collect()
    }

    /// Gives up the version before `version`, if `version` still runs.
    fn give_up_fallback(self: &Arc<Self>, function: FunctionId, version: VersionId) {
        if self.tuning.holds(function) {
            // The comparison of the two versions gives one of them up.
            return;
        }
        let versions = self.versions.seen(function);
        if versions.published().is_none_or(|held| held.id != version) {
            return;
        }
        if let Some(old) = versions.release_fallback() {
            self.retire_version(function, old);
        }
    }
}
