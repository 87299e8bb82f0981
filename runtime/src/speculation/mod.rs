//! Speculative compilation: idle processors compile functions before a program calls them.
//!
//! While a program starts, one processor compiles the called functions and the others are idle.
//! [`Foresight`](uruk_tiering::foresight::Foresight) guesses the next calls from the bodies of
//! compiled functions and from the first calls so far. An order of calls can also be given: by a
//! former run ([`order`]), or by an embedder (`Dylib::compile_ahead`).
//!
//! ```text
//! compile of f ── sketch of its body ──┐
//! first call of g ─────────────────────┴─ mail ── worker: guess h ── version::make(h) ── prepared
//!                                                                                        │
//! call of h: not begun: compiles. Under way: joins. Prepared: its own thread stores it ──┘
//! ```
//!
//! | | |
//! |---|---|
//! | threads | `uruk-ahead-N`, one less than there are processors and compile workers; none on a single processor, with one job, nor in the child of a fork |
//! | join | a first call of a function under way: the worker that took the call polls for a moment whether the code is there ([`work`]), then leaves the answer to the compiling thread, for as long as that thread has a processor, and compiles another function ahead itself if that takes long |
//! | bounds | how many guesses may be outstanding (`Foresight::may_guess`), and how much a worker waited for a processor ([`work`]) |
//! | fork, end, removal, replacement | as for versions in the background: compiles under way are cancelled, and nothing of them is published ([`jobs`](crate::tiers)) |
//!
//! # Invariants
//! - Only ready code is published, and only by the calling thread: code that was compiled ahead is
//!   *prepared* (`StubTable::prepare`), and the first call stores it into the slot. So a bound slot
//!   shows, at any tier, that a guess was right, and a waiting call is answered by the same step.
//! - A failure is reported by the first call: a compile ahead drops it, and the call compiles
//!   again.
//! - Resolvers, constructors and `main` itself are not guessed; the order of anything that runs is
//!   the program's.
//! - Callees are found by names as far as that needs no call of an embedder: names of the module
//!   itself, and names that are ready. Linking the compiled code looks names up as any compile
//!   does, and so may materialize units of an embedder. That is why a session guesses only if it is
//!   enabled ([`JitBuilder::speculate`](crate::JitBuilder::speculate)).
//!
//! # Why
//! - A worker does not compile at a lower priority: a thread that needs one of its locks would wait
//!   for it on a busy machine, and no thread may raise its priority again.
//! - State of workers of first calls ([`Front`]) has a lock of its own, held for a few stores:
//!   under the lock of the guesses ([`Mind`]) a look ahead takes longer than half a compile.
//! - The gain on two idle processors (medians of 15 by turns, two runs, relative to the time
//!   without, from bitcode to exit): sqlite's trivial query 0.88 and 0.89, Lua's hello 0.77 and
//!   0.79, QuickJS's 0.93 and 0.94, at 1.06 to 1.22 of the processor time. In a variant
//!   each first call woke the compiling threads, all shared one lock and the compilers' buffers,
//!   and calls waited for it asleep: 0.96 to 1.04 at 1.20 to 1.38. Before it kept away from the
//!   caller's processor: 0.93, 0.80 and 0.95. Under real-time scheduling of all, which wakes
//!   threads on idle processors, 0.65 to 0.80. The rest has three causes: where and when the kernel
//!   runs a napping thread, a sixth to a quarter of the time that is over before the first call, and
//!   guesses in place of known calls. (A simulation of two processors leaves 0.55 where all calls
//!   are known, 0.64 to 0.71 where they are guessed.)
//! - Bodies are sketched before they are compiled, not after: compiles of their callees are under
//!   way when they first run.

mod order;
mod processor;
pub(crate) mod work;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_codegen::{Cancellation, ModulePlan, Sketch};
use uruk_tiering::foresight::Foresight;

use crate::code::module::Module;
use crate::fork::gate;
use crate::loops::state::Continuations;
use processor::Watch;
use std::ops::Deref;

/// Largest number of waiting messages; more are dropped.
const MOST_MAIL: usize = 2_000;

/// Bytes of bitcode above which a module is read once more only when a function of it is to be
/// compiled: that takes 10 ms.
const MOST_BYTES: usize = 8 << 20;

/// Number of first calls whose order is kept.
const MOST_ORDER: usize = 100_000;

/// Time after the begin of a compile ahead for which the program counts as starting.
const BUSY: Duration = Duration::from_millis(20);

/// A message to a worker.
enum Mail {
    /// The function was called for the first time.
    Called(FunctionId),
    /// The callees of a function.
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
    /// When a first call joined it.
    joined: Option<Duration>,
    /// Shows whether the compiling thread has a processor.
    pilot: Watch,
}

/// State shared by workers of first calls and threads that compile ahead.
#[derive(Default)]
struct Front {
    mail: Vec<Mail>,
    under_way: Vec<Flight>,
    /// Modules that are to be read once more.
    unread: Vec<Arc<Module>>,
    /// Functions whose first call a worker has taken.
    taken: HashSet<FunctionId>,
    /// Functions whose bodies were sketched.
    sketched: HashSet<FunctionId>,
    idle: Vec<Thread>,
    /// Workers of first calls that compile ahead.
    helping: usize,
    /// There are news for a worker that is about to wait.
    news: bool,
    stats: SpeculationStats,
    over: bool,
}

/// State of the guesses, for threads that compile ahead. Locked before [`Front`], if both are.
#[derive(Default)]
struct Mind {
    foresight: Foresight,
    /// Prepared functions that were not seen called.
    prepared: Vec<FunctionId>,
    /// First calls in the order in which they were seen.
    order: Vec<FunctionId>,
    /// Number of prepared functions that were seen called.
    called: u64,
}

/// Statistics of functions compiled before their first call; see
/// [`JitBuilder::speculate`](crate::JitBuilder::speculate).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeculationStats {
    /// Functions that were compiled before they were called.
    pub compiled: u64,
    /// The number of them that were called since.
    pub called: u64,
    /// First calls that came while their function was being compiled ahead.
    pub joined: u64,
    /// Compiles ahead without a result.
    pub failed: u64,
}

/// The speculation of a session; see the module.
pub(crate) struct Speculation {
    /// Largest number of threads that compile ahead.
    most: usize,
    /// Whether anything is noted. Relaxed: a thread that sees the change late notes something in
    /// vain.
    on: AtomicBool,
    /// Whether a first call waits for a compile ahead. Relaxed: a worker that left such a call sees
    /// its own store.
    joined: AtomicBool,
    /// When a compile ahead began, in the session's time; zero for never. Relaxed: a hint.
    begun_ns: AtomicU64,
    /// Number of threads that rest because they had no processor. Relaxed: a hint.
    resting: AtomicUsize,
    front: Mutex<Front>,
    mind: Mutex<Mind, ranks::SpeculationMind>,
    /// The layer below.
    pub(crate) continuations: Arc<Continuations>,
    end: gate::End,
}

/// The layer below.
impl Deref for Speculation {
    type Target = Arc<Continuations>;

    fn deref(&self) -> &Arc<Continuations> {
        &self.continuations
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Speculation {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Mind {
    /// Notes a first call.
    fn called(&mut self, function: FunctionId) {
        if self.foresight.called(function) && self.order.len() < MOST_ORDER {
            self.order.push(function);
        }
    }
}

impl Front {
    /// Makes a worker look again.
    fn wake(&mut self) {
        self.news = true;
        if let Some(worker) = self.idle.pop() {
            worker.unpark();
        }
    }

    /// Leaves a message; returns whether there was room.
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
    /// The largest number of threads that compile ahead, with `jobs` compile workers on `cpus`
    /// processors.
    pub(crate) fn most(wanted: bool, jobs: usize, cpus: usize) -> usize {
        match wanted {
            true => jobs.min(cpus).saturating_sub(1),
            false => 0,
        }
    }

    /// The speculation of a session, with `most` threads at most.
    pub(crate) fn new(most: usize, continuations: Arc<Continuations>) -> Arc<Speculation> {
        Arc::new(Speculation {
            most,
            on: AtomicBool::new(most > 0),
            joined: AtomicBool::new(false),
            begun_ns: AtomicU64::new(0),
            resting: AtomicUsize::new(0),
            front: Mutex::default(),
            mind: Mutex::default(),
            continuations,
            end: gate::End::default(),
        })
    }

    /// Largest number of threads that compile ahead.
    pub(crate) fn threads(&self) -> usize {
        self.most
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether idle processors compile ahead of the program, or did just before, or have other
    /// threads to run.
    pub(crate) fn is_busy(&self, now: Duration) -> bool {
        let begun = self.begun_ns.load(Ordering::Relaxed);
        let lately = now.saturating_sub(Duration::from_nanos(begun)) < BUSY;
        begun > 0 && lately || self.resting.load(Ordering::Relaxed) > 0
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock()
    }

    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock()
    }

    /// Makes a worker look again.
    fn wake(&self) {
        self.front().wake();
    }

    /// Lets threads that compile ahead read modules too, while their data is linked.
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

    /// Whether `function` is compiled ahead now, without a caller.
    pub(crate) fn is_guess(&self, function: FunctionId) -> bool {
        let guess = |flight: &Flight| flight.function == function && flight.joined.is_none();
        self.is_on() && self.front().under_way.iter().any(guess)
    }

    /// Whether bodies are sketched, so that callers of functions are known.
    pub(crate) fn knows_callers(&self) -> bool {
        self.most > 0
    }

    /// The functions with code that call `callee` by name, as far as their bodies were sketched.
    pub(crate) fn callers(&self, callee: FunctionId) -> Vec<FunctionId> {
        self.learn_first_calls();
        self.mind().foresight.callers(callee).to_vec()
    }

    /// Whether the body of `function` is to be sketched.
    pub(crate) fn wants(&self, function: FunctionId) -> bool {
        self.is_on() && !self.front().sketched.contains(&function)
    }

    /// Takes the sketch of `function`, which is being compiled.
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
        // A napping thread sees the message by itself, and wakes others.
        match front.under_way.len() + front.idle.len() >= self.most {
            true => front.wake(),
            false => front.news = true,
        }
    }

    /// Notes that another thread compiles `function`.
    pub(crate) fn leave(&self, function: FunctionId) {
        if self.is_on() {
            self.mind().foresight.begun(function);
        }
    }

    /// Forgets a function that was replaced or removed.
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
        // The messages are dropped without the lock: one may be the last reference to its module.
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

    /// Sets the expected order of first calls.
    pub(crate) fn expect(&self, functions: impl IntoIterator<Item = FunctionId>) {
        if !self.is_on() {
            return;
        }
        self.mind().foresight.expect(functions);
        self.wake();
    }

    /// First calls so far, in the order in which they were seen.
    pub(crate) fn order(&self) -> Vec<FunctionId> {
        self.mind().order.clone()
    }

    pub(crate) fn stats(&self) -> SpeculationStats {
        let called = self.mind().called;
        let stats = self.front().stats;
        SpeculationStats { called, ..stats }
    }

    /// Ends compiles under way without waiting callers.
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

    /// Begins no more compiles; those under way end soon, unless a call waits for them.
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
        // The last reference to a module is not dropped here.
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
