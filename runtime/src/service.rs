//! The compile service: workers that answer first calls, and their life around
//! `fork`.
//!
//! A worker blocks all signals: guest handlers must never run on its stack. Around
//! a request it holds a pass of the gate; `fork` closes the gate, so that at the
//! moment of the fork no other thread is inside LLVM or holds any lock, and the child
//! can go on with workers of its own. Locks are `uruk_locks`': a debug build ends where
//! one is taken without a pass.
//!
//! - Under a pass no handler of the program's runs (`shield`): it may wait for a worker,
//!   which may wait for what the thread holds that the handler interrupted. Whoever waits for
//!   another thread without holding a lock lets handlers run.
//! - A thread with a pass gets more without asking: the gate counts threads. So a thread
//!   inside may wait for others that are inside or have yet to come in: the gate is not
//!   closed before it is empty.
//! - The gate's own lock is held by the forking thread from the moment the gate is empty
//!   until both sides are whole.
//! - A fork that has waited for a while has background compiles interrupted (`jobs`).
//! - Children that are made past `fork` catch up later, where they can (`unseen`).
//! - A thread that forks inside does not wait for itself. Listeners must not fork all the
//!   same: they may be called under a lock that the two sides take.
//!
//! A worker in which LLVM reports a fatal error never returns: its function fails,
//! another worker takes its place, and it is counted out.
//!
//! | field | writer | meaning |
//! |---|---|---|
//! | `GateState::inside` | whoever comes in or leaves, lost threads last | threads inside |
//! | `GateState::awaited` | whoever waits for that to fall | to be told when it does |

pub(crate) mod unseen;

use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::{error, warn};
use uruk_codegen::fatal;
use uruk_locks::Cover;
use uruk_stubs::FunctionId;

use crate::background;
use crate::core::Core;
use crate::error::Error;
use crate::event::Event;
use crate::guest::threads;
use crate::jobs::PATIENCE;
use crate::panics;
use crate::room;
use crate::sacrificial;
use crate::shield::{self, Shield};
use crate::thread;
use crate::untrusted;

/// How long the end of a session, or of the process, waits for compiles under way.
pub(crate) const LAST_COMPILES: Duration = Duration::from_secs(10);

/// How long a look at the gate by a thread of the program takes, at most.
const GLANCE: Duration = Duration::from_millis(1);

static GATE: Gate = Gate {
    state: Mutex::new(GateState {
        inside: 0,
        awaited: 0,
    }),
    left: Condvar::new(),
};
static SESSIONS: uruk_locks::Mutex<Vec<Weak<Core>>> = uruk_locks::Mutex::new(Vec::new());

/// Counts who is inside; its lock is held around `fork`. Not a read-write lock, because a
/// thread that LLVM took down must be counted out by what is left of it ([`leave_lost`]).
struct Gate {
    state: Mutex<GateState>,
    left: Condvar,
}

struct GateState {
    inside: usize,
    awaited: usize,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        debug_assert!(!shield::is_interruptible(), "a handler would find it held");
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self) {
        let mut state = self.lock();
        state.inside -= 1;
        if state.awaited != 0 {
            self.left.notify_all();
        }
    }

    /// Waits until no more than `own` threads are inside, at most for `limit`, and keeps
    /// others out. Who gives up waiting keeps them out, too.
    fn close(&self, own: usize, limit: Option<Duration>) -> MutexGuard<'_, GateState> {
        self.wait(self.lock(), own, limit)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, GateState>,
        own: usize,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, GateState> {
        state.awaited += 1;
        let late = |state: &mut GateState| state.inside > own;
        // A poisoned lock is as good as any: nothing panics under it.
        let mut state = match limit {
            None => self.left.wait_while(state, late),
            Some(limit) => match self.left.wait_timeout_while(state, limit, late) {
                Ok((state, _)) => Ok(state),
                Err(poisoned) => Ok(poisoned.into_inner().0),
            },
        }
        .unwrap_or_else(PoisonError::into_inner);
        state.awaited -= 1;
        state
    }
}

/// The right to take locks, and to compile; no other thread forks while it is held, and no
/// handler of the program's runs on this one. It stays on its thread.
pub(crate) struct Pass {
    cover: ManuallyDrop<Cover>,
    /// Goes last.
    _shield: Shield,
}

impl Drop for Pass {
    fn drop(&mut self) {
        // SAFETY: not used after this. First, as it checks that no lock is held any more.
        unsafe { ManuallyDrop::drop(&mut self.cover) };
        if uruk_locks::covers() == 0 {
            GATE.leave();
        }
    }
}

/// Waits until no fork is under way.
pub(crate) fn enter() -> Pass {
    let shield = Shield::raise();
    if uruk_locks::covers() == 0 {
        unseen::attend();
        GATE.lock().inside += 1;
    }
    Pass {
        cover: ManuallyDrop::new(Cover::new()),
        _shield: shield,
    }
}

/// The pass of a value that is dropped, as its last field.
#[derive(Default)]
pub(crate) struct End(Option<Passing>);

impl Clone for End {
    /// Another value's, which is not at its end.
    fn clone(&self) -> End {
        End::default()
    }
}

impl End {
    /// To be called by the value's `drop`, before its fields go.
    pub(crate) fn begin(&mut self) {
        self.0 = Some(Passing(enter()));
    }
}

/// A pass in a value that may change its thread.
struct Passing(Pass);

// SAFETY: it is made when the value is dropped, and goes before that ends, on one thread.
unsafe impl Send for Passing {}
// SAFETY: a shared one allows nothing.
unsafe impl Sync for Passing {}

/// Waits until nobody else compiles or tells what was compiled, at most for `limit`. Signals
/// of the calling thread are held back for [`GLANCE`] at a time.
pub(crate) fn settle(limit: Duration) {
    let start = Instant::now();
    let own = usize::from(uruk_locks::covers() != 0);
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let _shield = Shield::raise();
        let state = GATE.close(own, Some(left.min(GLANCE)));
        if state.inside <= own || left.is_zero() {
            return;
        }
    }
}

/// The sessions there are; the list is not locked any more.
pub(crate) fn sessions() -> Vec<Arc<Core>> {
    let held = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    held.iter().filter_map(Weak::upgrade).collect()
}

/// Has the end of the process wait for background compiles. To be called when the
/// first is about to begin: what LLVM made until then is destroyed later than this
/// runs. The command has no need, it never destroys LLVM's objects.
pub(crate) fn wait_at_exit() {
    extern "C" fn at_exit() {
        let pass = enter();
        let sessions = sessions();
        for core in &sessions {
            core.tiers.pause(true);
            core.tiers.drop_jobs();
        }
        drop(sessions);
        drop(pass);
        settle(LAST_COMPILES);
    }
    static ONCE: Once = Once::new();
    // SAFETY: a function that lives as long as the process.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

/// The last a thread does that LLVM took down inside its pass: it never gives that back.
pub(crate) fn leave_lost() {
    if uruk_locks::covers() != 0 {
        GATE.leave();
    }
}

thread_local! {
    static FORK: Cell<Option<ForkState>> = const { Cell::new(None) };
}

/// What the forking thread holds between `prepare` and the other side; goes in order.
struct ForkState {
    sessions: Vec<Arc<Core>>,
    _cover: Cover,
    _closed: MutexGuard<'static, GateState>,
    _shield: Shield,
}

/// The pass under which a session is made and started.
pub(crate) fn begin() -> Pass {
    register_fork_handlers();
    let pass = enter();
    // Installs handlers once, which a child of fork would wait for.
    fatal::guard(|_| {}, || {});
    pass
}

/// Starts the workers of a session and keeps it informed of forks. Under a pass, held since
/// before the session was made.
pub(crate) fn start(core: &Arc<Core>) -> Result<(), Error> {
    SESSIONS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::downgrade(core));
    spawn(core, room::threads(core.jobs))?;
    background::start(core)
}

/// Starts `count` workers, or as many of them as can be had.
fn spawn(core: &Arc<Core>, count: usize) -> Result<(), Error> {
    for index in 0..count {
        let served = Arc::clone(core);
        match thread::spawn(format!("uruk-{index}"), move || serve(&served, index == 0)) {
            Err(cause) if index == 0 => return Err(cause),
            Err(cause) => {
                warn!(asked = count, had = index, %cause, "fewer compile workers");
                break;
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Has the C library give the calling thread room for a compile at once, the first time it
/// is called there: the heap of a thread other than the first grows by a page at a time, with
/// a system call for each. Pages are still only used when they are written to.
pub(crate) fn widen_heap() {
    /// Less than what is mapped by itself (128 KiB).
    const PIECE: usize = 120 << 10;
    /// 2 MiB in all: what a first compile takes.
    const PIECES: usize = 17;
    thread_local! {
        static WIDE: Cell<bool> = const { Cell::new(false) };
    }
    if WIDE.replace(true) {
        return;
    }
    // SAFETY: allocates; null is a piece, too.
    let pieces = [(); PIECES].map(|()| unsafe { libc::malloc(PIECE) });
    for piece in std::hint::black_box(pieces) {
        // SAFETY: allocated above, and used by nobody.
        unsafe { libc::free(piece) };
    }
}

/// A worker's life; the first one also looks after the main thread.
fn serve(core: &Arc<Core>, first: bool) {
    // Without a controller somebody has to see that nothing is compiled any more.
    let rests = !core.tiers.is_auto();
    let idle = first.then_some(threads::LOOK_INTERVAL);
    let busy = if rests { Some(room::REST) } else { idle };
    let mut patience = busy;
    while !core.is_stopping() {
        match core.stubs.wait_request(patience) {
            Some(id) => {
                let _busy = enter();
                if let Some(panic) = answer(core, id) {
                    replace_worker(core, &panic);
                    return;
                }
                patience = busy;
            }
            None => {
                if first {
                    threads::look_at_main_thread();
                }
                if rests && core.heap.rest() {
                    patience = idle;
                }
            }
        }
    }
}

/// Says that the calling worker ends, and has another take its place, which also looks after
/// the main thread: without one, later calls wait for ever. Under a pass.
fn replace_worker(core: &Arc<Core>, message: &str) {
    if let Err(cause) = spawn(core, 1) {
        error!(%cause, message, "no worker in place of one that was lost");
    }
    // A listener may be what panics.
    panics::contained(|| core.tell_lost(message));
}

/// Answers a first call, under a pass; the text of a panic, which leaves this thread in doubt.
fn answer(core: &Arc<Core>, id: FunctionId) -> Option<String> {
    widen_heap();
    let version = core.tiers.versions.ids.next();
    let on_fatal = {
        let core = Arc::clone(core);
        move |message: &str| {
            core.lose_worker();
            core.tiers.versions.of(id).fail(version);
            core.fail(id, &core.fatal(id, message));
            replace_worker(&core, message);
            leave_lost();
        }
    };
    fatal::guard(on_fatal, || {
        // The request may have been answered by a compile-ahead meanwhile.
        if core.stubs.entry(id).is_some() {
            return None;
        }
        let taken = core.events.now();
        let made = panics::caught(|| core.churn().and_then(|()| core.materialize(id, version)));
        let Err(cause) = made else {
            return panics::contained(|| {
                core.events.tell(|| Event::Answered {
                    id,
                    function: core.name_of(id),
                    worker: thread::name(),
                    taken,
                    at: core.events.now(),
                });
            });
        };
        error!(function = core.name_of(id), %cause, "compile failed");
        core.fail(id, &cause);
        cause.panic().map(str::to_owned)
    })
}

pub(crate) fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut old = MaybeUninit::uninit();
    // SAFETY: fills both sets; the mask is the calling thread's own.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

pub(crate) fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: a set `block_signals` returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
}

fn register_fork_handlers() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        unseen::prepare();
        // SAFETY: three functions that live as long as the process. Registered before
        // any guest code runs: ours then run last before a fork and first after it.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        uruk_locks::demand(shield::is_interruptible);
        fatal::demand();
    });
}

/// Waits until nobody else is inside, and keeps all out.
fn close_gate() -> (MutexGuard<'static, GateState>, Cover) {
    let own = usize::from(uruk_locks::covers() != 0);
    let mut closed = GATE.close(own, Some(PATIENCE));
    let cover = Cover::new();
    if closed.inside > own {
        // Who forks inside may hold any lock; others hold none, and those who do never
        // wait for the gate.
        if own == 0 {
            sessions().iter().for_each(|core| core.interrupt_jobs());
        }
        closed = GATE.wait(closed, own, None);
    }
    (closed, cover)
}

unsafe extern "C" fn before_fork() {
    // Until both sides are whole: a handler would wait for workers, and they for the gate.
    let shield = Shield::raise();
    // Also a child that is itself not whole yet.
    unseen::attend();
    let (closed, cover) = close_gate();
    let sessions = sessions();
    for core in &sessions {
        let pool = core.names.session().pool();
        match core.lost_worker() {
            false => pool.quiesce(),
            true => pool.quiesce_but_for_tasks(),
        }
        core.heap.before_fork();
    }
    uruk_unwind::before_fork();
    let state = ForkState {
        sessions,
        _cover: cover,
        _closed: closed,
        _shield: shield,
    };
    FORK.with(|cell| cell.set(Some(state)));
}

unsafe extern "C" fn in_parent() {
    if let Some(state) = FORK.with(Cell::take) {
        uruk_unwind::after_fork();
        for core in &state.sessions {
            core.heap.after_fork_parent();
            core.reclaim.after_fork_parent();
            core.names.session().pool().resume();
        }
    }
}

unsafe extern "C" fn in_child() {
    if let Some(state) = FORK.with(Cell::take) {
        unseen::mark();
        made_in_child(state);
    }
}

/// Makes a child whole, with the locks that it was made under.
fn made_in_child(state: ForkState) {
    uruk_unwind::after_fork();
    if untrusted::is_reader() {
        // It reads one input and ends: nothing runs there that a session would serve.
        return;
    }
    threads::after_fork_child();
    sacrificial::after_fork_child();
    for core in &state.sessions {
        // Inherited code runs on even when the kernel refuses fresh memory; the next
        // compile then fails with the heap's own error.
        if let Err(cause) = core.heap.after_fork_child() {
            error!(%cause, "no fresh code memory after fork");
        }
        core.stubs.after_fork_child();
        core.names.session().pool().after_fork_child();
        core.tiers.after_fork_child();
        core.reclaim.after_fork_child();
        core.replacing.after_fork_child();
        core.events.after_fork_child();
        core.tools.after_fork_child();
    }
    for core in &state.sessions {
        // One worker: most children call `exec` soon. It comes in when the gate is open.
        if let Err(cause) = spawn(core, 1).and_then(|()| background::start(core)) {
            error!(%cause, "no compile worker after fork");
        }
    }
}
