//! First calls that were seen coming: functions are compiled by idle processors before a program
//! calls them.
//!
//! While a program starts, one processor compiles what it calls and the others have nothing to
//! do. Which calls come is guessed by [`Foresight`](uruk_tiering::foresight::Foresight) from the
//! bodies of what was compiled and from the first calls so far, or told: by the order of a former
//! run ([`order`]), or by an embedder (`Jit::compile_ahead`).
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
//! | join | a first call of what is under way: the worker that took it looks for a moment whether it is there ([`work`]), then leaves the answer to who compiles, for as long as that thread has a processor, and compiles something ahead itself if that takes long |
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
//!   guesses only if it is told to ([`JitBuilder::speculate`](crate::JitBuilder::speculate)).
//!
//! # Why
//! - A worker does not compile at a lower priority: whoever wants a lock that it holds would wait
//!   for it on a busy machine, and no thread may raise its priority again.
//! - What workers of first calls touch ([`Front`]) has a lock of its own, held for a few stores:
//!   under that of the guesses ([`Mind`]) a look ahead takes longer than half a compile.
//! - What it gains, on two idle processors (medians of 15 by turns, two runs, of the time without,
//!   from bitcode to exit): sqlite's trivial query 0.88 and 0.89, Lua's hello 0.77 and 0.79,
//!   QuickJS's 0.93 and 0.94, at 1.06 to 1.22 of the processor time. Where each first call woke who
//!   compiles ahead, all shared one lock and the compilers' buffers, and calls waited for it asleep,
//!   it was 0.96 to 1.04 at 1.20 to 1.38; before it kept away from the caller's processor, 0.93,
//!   0.80 and 0.95. Under real-time scheduling of all, which wakes threads on idle processors,
//!   0.65 to 0.80: what is left is the kernel's choice of where and when a napping thread runs, a
//!   sixth to a quarter of the time that is over before the first call, and guesses (a simulation
//!   of two processors leaves 0.55 where all calls are known, 0.64 to 0.71 where they are guessed).
//! - Bodies are sketched before they are compiled, not after: their callees are under way when
//!   they first run.

mod order;
mod processor;
pub(crate) mod work;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::{Cancellation, ModulePlan, Sketch};
use uruk_tiering::foresight::Foresight;

use crate::core::Module;
use processor::Watch;

/// Messages that wait for a worker; beyond, they are dropped.
const MOST_MAIL: usize = 2_000;

/// Bytes of bitcode beyond which a module is read once more only when there is something to
/// compile: that takes 10 ms.
const MOST_BYTES: usize = 8 << 20;

/// First calls whose order is kept.
const MOST_ORDER: usize = 100_000;

/// How long after a compile ahead began the program counts as one that starts.
const BUSY: Duration = Duration::from_millis(20);

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
    /// Whether who compiles it gets on.
    pilot: Watch,
}

/// What workers of first calls touch, and what is told to those that compile ahead.
#[derive(Default)]
struct Front {
    mail: Vec<Mail>,
    under_way: Vec<Flight>,
    /// Modules to be read once more.
    unread: Vec<Arc<Module>>,
    /// First calls that came to a worker.
    taken: HashSet<FunctionId>,
    /// Functions whose bodies were told of.
    sketched: HashSet<FunctionId>,
    idle: Vec<Thread>,
    /// Workers of first calls that compile something ahead.
    helping: usize,
    /// There is something to look at, for whoever is about to wait.
    news: bool,
    stats: SpeculationStats,
    over: bool,
}

/// What is known of the program, for those that compile ahead. Taken before [`Front`]'s lock, if
/// both are.
#[derive(Default)]
struct Mind {
    foresight: Foresight,
    /// Prepared, and not seen called.
    prepared: Vec<FunctionId>,
    /// First calls as they were seen.
    order: Vec<FunctionId>,
    /// Of what was prepared, how many were seen called.
    called: u64,
}

/// What was compiled before it was called; see [`JitBuilder::speculate`](crate::JitBuilder::speculate).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeculationStats {
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
    /// Whether a first call waits for a compile ahead. Relaxed: a worker that left one there sees
    /// what it stored itself.
    joined: AtomicBool,
    /// When a compile ahead began, in the session's time; zero for never. Relaxed: a hint.
    begun_ns: AtomicU64,
    /// How many threads rest because they had no processor. Relaxed: a hint.
    resting: AtomicUsize,
    front: Mutex<Front>,
    mind: Mutex<Mind>,
}

impl Mind {
    /// A first call was seen.
    fn called(&mut self, function: FunctionId) {
        if self.foresight.called(function) && self.order.len() < MOST_ORDER {
            self.order.push(function);
        }
    }
}

impl Front {
    /// Has a worker look again.
    fn wake(&mut self) {
        self.news = true;
        if let Some(worker) = self.idle.pop() {
            worker.unpark();
        }
    }

    /// Leaves a message; whether there was room.
    fn put(&mut self, mail: Mail) -> bool {
        let room = !self.over && self.mail.len() < MOST_MAIL;
        if room {
            self.mail.push(mail);
        }
        room
    }

    fn flight_of(&mut self, function: FunctionId) -> Option<&mut Flight> {
        let mut under_way = self.under_way.iter_mut();
        under_way.find(|flight| flight.function == function)
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
            joined: AtomicBool::new(false),
            begun_ns: AtomicU64::new(0),
            resting: AtomicUsize::new(0),
            front: Mutex::default(),
            mind: Mutex::default(),
        }
    }

    /// Threads that compile ahead, at most.
    pub(crate) fn threads(&self) -> usize {
        self.most
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether processors that the program does not use compile ahead of it, or did just before,
    /// or have others to run.
    pub(crate) fn is_busy(&self, now: Duration) -> bool {
        let begun = self.begun_ns.load(Ordering::Relaxed);
        let lately = now.saturating_sub(Duration::from_nanos(begun)) < BUSY;
        begun > 0 && lately || self.resting.load(Ordering::Relaxed) > 0
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a worker look again.
    fn wake(&self) {
        self.front().wake();
    }

    /// Has modules read by those who compile ahead, too, while their data is linked.
    pub(crate) fn read<'a>(&self, modules: impl Iterator<Item = &'a Arc<Module>>) {
        if !self.is_on() {
            return;
        }
        let size = |module: &Module| module.readers.bitcode().bytes().len();
        let mut front = self.front();
        let small = modules.filter(|module| size(module) <= MOST_BYTES);
        front.unread.extend(small.cloned());
        front.wake();
    }

    /// Whether `function` is compiled ahead now, and nobody has called it.
    pub(crate) fn is_guess(&self, function: FunctionId) -> bool {
        let guess = |flight: &Flight| flight.function == function && flight.joined.is_none();
        self.is_on() && self.front().under_way.iter().any(guess)
    }

    /// Whether the body of `function` is wanted.
    pub(crate) fn wants(&self, function: FunctionId) -> bool {
        self.is_on() && !self.front().sketched.contains(&function)
    }

    /// Takes what `function` calls, which is being compiled.
    pub(crate) fn sketched(
        &self,
        function: FunctionId,
        module: &Arc<Module>,
        plan: &Arc<ModulePlan>,
        sketch: Sketch,
    ) {
        let body = Box::new(Sketched {
            function,
            module: Arc::clone(module),
            plan: Arc::clone(plan),
            sketch,
        });
        let mut front = self.front();
        if !front.sketched.insert(function) || !front.put(Mail::Body(body)) {
            return;
        }
        // Who naps sees it by itself, and wakes others.
        match front.under_way.len() + front.idle.len() >= self.most {
            true => front.wake(),
            false => front.news = true,
        }
    }

    /// Says that somebody else sees to `function`.
    pub(crate) fn leave(&self, function: FunctionId) {
        if self.is_on() {
            self.mind().foresight.begun(function);
        }
    }

    /// The function is another one, or none.
    pub(crate) fn forget(&self, function: FunctionId) {
        if self.most == 0 {
            return;
        }
        {
            let mut mind = self.mind();
            mind.foresight.forget(function);
            mind.prepared.retain(|prepared| *prepared != function);
            mind.order.retain(|called| *called != function);
        }
        // What goes is dropped when the lock is not held: it may be the last of its module.
        let _gone: Vec<Mail> = {
            let mut front = self.front();
            front.taken.remove(&function);
            front.sketched.remove(&function);
            let of_it = |mail: &mut Mail| match mail {
                Mail::Called(called) => *called == function,
                Mail::Body(body) => body.function == function,
            };
            front.mail.extract_if(.., of_it).collect()
        };
    }

    /// First calls are expected in this order.
    pub(crate) fn expect(&self, functions: impl IntoIterator<Item = FunctionId>) {
        if !self.is_on() {
            return;
        }
        self.mind().foresight.expect(functions);
        self.wake();
    }

    /// First calls so far, in their order, as far as they were seen.
    pub(crate) fn order(&self) -> Vec<FunctionId> {
        self.mind().order.clone()
    }

    pub(crate) fn stats(&self) -> SpeculationStats {
        let called = self.mind().called;
        let stats = self.front().stats;
        SpeculationStats { called, ..stats }
    }

    /// Ends compiles under way that nobody waits for.
    pub(crate) fn interrupt(&self) {
        if self.most == 0 {
            return;
        }
        for flight in &self.front().under_way {
            if flight.joined.is_none() {
                flight.cancel.cancel();
            }
        }
    }

    /// Nothing begins any more; what is under way ends soon, unless a call waits for it.
    pub(crate) fn close(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.interrupt();
        let mut front = self.front();
        front.over = true;
        let _gone = (
            std::mem::take(&mut front.mail),
            std::mem::take(&mut front.unread),
        );
        for worker in front.idle.drain(..) {
            worker.unpark();
        }
        drop(front);
    }

    /// In the child of a fork, which soon becomes another program: nothing is guessed there.
    pub(crate) fn after_fork_child(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.joined.store(false, Ordering::Relaxed);
        self.resting.store(0, Ordering::Relaxed);
        let mut front = self.front();
        // The last of a module is not dropped here.
        std::mem::forget(std::mem::take(&mut front.mail));
        std::mem::forget(std::mem::take(&mut front.unread));
        let stats = front.stats;
        *front = Front {
            over: true,
            stats,
            ..Front::default()
        };
        drop(front);
        let mut mind = self.mind();
        let called = mind.called;
        *mind = Mind {
            called,
            ..Mind::default()
        };
    }
}
