//! First calls that were seen coming: functions are compiled by idle processors before a program
//! calls them.
//!
//! While a program starts, one processor compiles what it calls and the others have nothing to
//! do. Which calls come is guessed by [`Foresight`](uruk_tiering::foresight::Foresight) from the
//! bodies of what was compiled and from the first calls so far, or told: by the order of a former
//! run ([`order`]), or by an embedder (`Jit::expect`).
//!
//! ```text
//! compile of f ── sketch of its body ──┐
//! first call of g ─────────────────────┴─ mail ── worker: guess h ── version::make(h) ── prepared
//!                                                                                        │
//! call of h: not begun: as ever. Under way: joins. Prepared: its own thread stores it ───┘
//! ```
//!
//! | | |
//! |---|---|
//! | who | threads `uruk-ahead-N`, one less than there are processors and compile workers; none on a single processor, with one job, nor in the child of a fork |
//! | join | a first call of what is under way: the worker that took it leaves the answer to who compiles, and compiles something ahead itself meanwhile, unless it is the last one that could take a call |
//! | bounds | how many guesses may be outstanding (`Foresight::may_guess`), and how much a worker waited for a processor ([`work`]) |
//! | fork, end, removal, replacement | as for versions in the background: under way they are cancelled, and nothing of them is published ([`jobs`](crate::tiers)) |
//!
//! # Invariants
//! - Nothing is published that is not ready, and by nobody but who calls: code that was
//!   compiled ahead is *prepared* (`StubTable::prepare`), and the first call stores it into the
//!   slot. So a guess is known to be right when the slot is bound, at any tier, and a call that
//!   waits is answered by the same step.
//! - A failure is the first call's to tell: one ahead is dropped, and the call compiles again.
//! - Resolvers, constructors and `main` itself are not guessed; the order of anything that runs
//!   is the program's.
//! - Callees are what names mean where that can be known without asking an embedder: names of the
//!   module itself, and such as are ready. Linking what was compiled looks names up as
//!   any compile does, and so may have units of an embedder's materialized: that is why a session
//!   guesses only if it is told to ([`JitBuilder::speculate`]).
//!
//! # Why
//! - A worker does not compile at a lower priority: a call that joins would wait for it on a
//!   busy machine, and no thread may raise its priority again.
//! - Bodies are sketched before they are compiled, not after: their callees are under way when
//!   they first run.

mod order;
pub(crate) mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::{Cancellation, ModulePlan, Sketch};
use uruk_tiering::foresight::Foresight;

use crate::api::builder::JitBuilder;
use crate::core::Module;

/// Messages that wait for a worker; beyond, they are dropped.
const MOST_MAIL: usize = 2_000;

/// Bytes of bitcode beyond which a module is read once more only when there is something to
/// compile: that takes 10 ms.
const MOST_BYTES: usize = 8 << 20;

/// First calls whose order is kept.
const MOST_ORDER: usize = 100_000;

/// What a worker is told.
enum Mail {
    /// It was called for the first time.
    Called(FunctionId),
    /// What it calls.
    Body(Box<Sketched>),
}

/// A body as the compiler read it.
struct Sketched {
    function: FunctionId,
    module: Arc<Module>,
    plan: Arc<ModulePlan>,
    sketch: Sketch,
}

/// A compile ahead.
struct Flight {
    function: FunctionId,
    cancel: Cancellation,
    /// When a first call joined.
    joined: Option<Duration>,
    /// On a worker of first calls.
    helped: bool,
}

#[derive(Default)]
struct State {
    foresight: Foresight,
    mail: Vec<Mail>,
    under_way: Vec<Flight>,
    /// Modules to be read once more.
    unread: Vec<Arc<Module>>,
    /// Prepared, and not seen called.
    prepared: Vec<FunctionId>,
    /// First calls as they were seen.
    order: Vec<FunctionId>,
    idle: Vec<Thread>,
    /// Workers of first calls that compile something ahead.
    helping: usize,
    stats: AheadStats,
    over: bool,
}

/// What was compiled before it was called; see [`JitBuilder::speculate`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AheadStats {
    /// Functions that were compiled before they were called.
    pub compiled: u64,
    /// Those of them that were called since.
    pub called: u64,
    /// First calls that came while their function was being compiled ahead.
    pub joined: u64,
    /// Compiles ahead that came to nothing.
    pub failed: u64,
}

/// What a session knows of first calls to come; see the module.
#[derive(Default)]
pub(crate) struct Speculation {
    /// Threads that compile ahead, at most.
    most: usize,
    /// Whether anything is noted. Relaxed: who sees too late a value notes something in vain.
    on: AtomicBool,
    state: Mutex<State>,
}

impl State {
    /// A first call was seen.
    fn called(&mut self, function: FunctionId) {
        self.foresight.called(function);
        if self.order.len() < MOST_ORDER {
            self.order.push(function);
        }
    }
}

impl Speculation {
    /// Of a session with that many compile workers on so many processors.
    pub(crate) fn new(wanted: bool, jobs: usize, cpus: usize) -> Speculation {
        let most = match wanted {
            true => jobs.min(cpus).saturating_sub(1),
            false => 0,
        };
        Speculation {
            most,
            on: AtomicBool::new(most > 0),
            state: Mutex::default(),
        }
    }

    /// Threads that compile ahead, at most.
    pub(crate) fn threads(&self) -> usize {
        self.most
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a worker look again.
    fn wake(&self) {
        if let Some(worker) = self.lock().idle.pop() {
            worker.unpark();
        }
    }

    /// Tells a worker, and wakes one that waits, if there is one.
    fn put(&self, mail: Mail) {
        let mut state = self.lock();
        if state.over || state.mail.len() >= MOST_MAIL {
            return;
        }
        // What was called is looked at with its body, which comes next.
        let called = matches!(mail, Mail::Called(_));
        state.mail.push(mail);
        if !called && let Some(worker) = state.idle.pop() {
            worker.unpark();
        }
    }

    /// Has modules read by those who compile ahead, too, while their data is linked.
    pub(crate) fn read<'a>(&self, modules: impl Iterator<Item = &'a Arc<Module>>) {
        if !self.is_on() {
            return;
        }
        let size = |module: &Module| module.readers.bitcode().bytes().len();
        let mut state = self.lock();
        state
            .unread
            .extend(modules.filter(|module| size(module) <= MOST_BYTES).cloned());
        if let Some(worker) = state.idle.pop() {
            worker.unpark();
        }
    }

    /// Whether `function` is compiled ahead now, and nobody has called it.
    pub(crate) fn is_guess(&self, function: FunctionId) -> bool {
        let guess = |flight: &Flight| flight.function == function && flight.joined.is_none();
        self.is_on() && self.lock().under_way.iter().any(guess)
    }

    /// Whether the body of `function` is wanted.
    pub(crate) fn wants(&self, function: FunctionId) -> bool {
        self.is_on() && !self.lock().foresight.knows(function)
    }

    /// Takes what `function` calls, which is being compiled.
    pub(crate) fn sketched(
        &self,
        function: FunctionId,
        module: &Arc<Module>,
        plan: &Arc<ModulePlan>,
        sketch: Sketch,
    ) {
        self.put(Mail::Body(Box::new(Sketched {
            function,
            module: Arc::clone(module),
            plan: Arc::clone(plan),
            sketch,
        })));
    }

    /// A first call of `function` came, and somebody compiles it from here on.
    pub(crate) fn called(&self, function: FunctionId) {
        if self.is_on() {
            self.put(Mail::Called(function));
        }
    }

    /// Says that somebody else sees to `function`.
    pub(crate) fn leave(&self, function: FunctionId) {
        if self.is_on() {
            self.lock().foresight.begun(function);
        }
    }

    /// The function is another one, or none.
    pub(crate) fn forget(&self, function: FunctionId) {
        if self.most == 0 {
            return;
        }
        // What goes is dropped when the lock is not held: it may be the last of its module.
        let _gone: Vec<Mail> = {
            let mut state = self.lock();
            state.foresight.forget(function);
            state.prepared.retain(|prepared| *prepared != function);
            state.order.retain(|called| *called != function);
            let of_it = |mail: &mut Mail| match mail {
                Mail::Called(called) => *called == function,
                Mail::Body(body) => body.function == function,
            };
            state.mail.extract_if(.., of_it).collect()
        };
    }

    /// Whether a first call waits for a compile ahead of `function`.
    fn is_joined(&self, function: FunctionId) -> bool {
        let state = self.lock();
        let mut under_way = state.under_way.iter();
        under_way.any(|flight| flight.function == function && flight.joined.is_some())
    }

    /// First calls are expected in this order.
    pub(crate) fn expect(&self, functions: impl IntoIterator<Item = FunctionId>) {
        if !self.is_on() {
            return;
        }
        let mut state = self.lock();
        state.foresight.expect(functions);
        if let Some(worker) = state.idle.pop() {
            worker.unpark();
        }
    }

    /// First calls so far, in their order, as far as they were seen.
    pub(crate) fn order(&self) -> Vec<FunctionId> {
        self.lock().order.clone()
    }

    pub(crate) fn stats(&self) -> AheadStats {
        self.lock().stats
    }

    /// Ends compiles under way that nobody waits for.
    pub(crate) fn interrupt(&self) {
        if self.most == 0 {
            return;
        }
        for flight in &self.lock().under_way {
            if flight.joined.is_none() {
                flight.cancel.cancel();
            }
        }
    }

    /// Nothing begins any more; what is under way ends soon, unless a call waits for it.
    pub(crate) fn close(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.interrupt();
        let mut state = self.lock();
        state.over = true;
        let _gone = (
            std::mem::take(&mut state.mail),
            std::mem::take(&mut state.unread),
        );
        for worker in state.idle.drain(..) {
            worker.unpark();
        }
        drop(state);
    }

    /// In the child of a fork, which soon becomes another program: nothing is guessed there.
    pub(crate) fn after_fork_child(&self) {
        self.on.store(false, Ordering::Relaxed);
        let mut state = self.lock();
        // The last of a module is not dropped here.
        std::mem::forget(std::mem::take(&mut state.mail));
        std::mem::forget(std::mem::take(&mut state.unread));
        *state = State {
            over: true,
            stats: state.stats,
            ..State::default()
        };
    }
}

impl JitBuilder {
    /// Has idle processors compile functions that are likely to be called soon: see
    /// [`Stats::ahead`](crate::Stats::ahead). Their first calls find them ready, or wait for
    /// less. Nothing that JIT'd code can observe changes; units and generators of the embedder
    /// may be asked for what a function needs that is never called. On a single processor, or
    /// with one [job](JitBuilder::jobs), it does nothing; nor does it in the child of a fork, or
    /// under [`Tiers::Churn`](crate::Tiers). Off by default.
    #[must_use]
    pub fn speculate(mut self, speculate: bool) -> JitBuilder {
        self.tiers.speculate = speculate;
        self
    }
}
