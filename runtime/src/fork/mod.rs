//! Threads of the runtime, and copies of the process while they run.
//!
//! Nothing here knows about sessions: an object with threads, locks or memory that a copy of the
//! process must find whole is a [`ForkMember`].
//!
//! | file | holds |
//! |---|---|
//! | [`gate`] | passes: threads inside, and waiting until there are none |
//! | [`errands`] | work that a fork would cut off outside of passes |
//! | [`shield`] | the program's signals, held back from threads inside |
//! | this one | both sides of `fork` |
//! | [`unseen`] | children that are made past `fork` |
//! | [`thread`] | threads of the runtime; [`sacrificial`]: one that LLVM may take down |
//! | [`panics`] | the consequence of a panic on them |
//! | [`futex`] | a word to wait for |
//! | [`confine`] | the end of all these threads, before the process gives up system calls |
//!
//! Entry: [`join`], once for each session; [`gate::enter`] everywhere.

pub(crate) mod confine;
pub(crate) mod errands;
pub(crate) mod futex;
pub(crate) mod gate;
pub(crate) mod hands;
pub(crate) mod panics;
pub(crate) mod sacrificial;
pub(crate) mod shield;
pub(crate) mod signals;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod unseen;

use std::cell::{Cell, RefCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, Once, OnceLock, Weak};
use std::time::{Duration, Instant};

use tracing::debug;
use uruk_base::locks::Cover;
use uruk_base::sandbox;
use uruk_codegen::fatal;

use gate::{GateState, Pass, enter, settle};
use shield::Shield;

/// How long the end of a session, or of the process, waits for compiles under way.
pub(crate) const LAST_COMPILES: Duration = Duration::from_secs(10);

/// An object that both sides of a fork find whole: a session. All methods are called by the thread
/// that forks, or copied itself, with no other thread inside, unless they say so.
pub(crate) trait ForkMember: Send + Sync {
    /// Begins no more compiles without waiting callers.
    fn wind_down(&self);

    /// Whether the end of the process must wait for compiles under way: LLVM's objects, which it
    /// destroys, are in use. Of a program in the command they stay.
    fn waits_at_exit(&self) -> bool;

    /// Ends compiles under way without waiting callers early. Others may be inside.
    fn interrupt(&self);

    /// Whether other threads run tasks of the library that may be outside, because they wait.
    fn has_tasks(&self) -> bool;

    /// Locks the state that must be whole.
    fn before_fork(&self);

    /// Locks it in a child, where it was not done before the copy; false if that is impossible.
    fn before_fork_in_child(&self) -> bool;

    /// Unlocks it in the parent.
    fn after_fork_parent(&self);

    /// Repairs the state in the child, which has no other thread.
    fn after_fork_child(&self);

    /// Starts threads again, in the child.
    fn restart(self: Arc<Self>);

    /// Starts a thread for first calls, if there is none; false if none can be started. Under a
    /// pass; others may be inside.
    fn serve(self: Arc<Self>) -> bool;

    /// Compiles all functions without code, and marks those that cannot be compiled as failed
    /// finally. Without a pass, on a thread of the runtime; others may be inside.
    fn finish_code(self: Arc<Self>);

    /// Ends the threads of the member, which has none from now on. Without a pass, on a thread of
    /// the runtime.
    fn end_threads(&self);
    /// Fails the first calls that wait, once no thread is left that would answer them.
    fn fail_requests(&self);
    /// Makes code read the processor's cycle counter no more.
    fn end_cycles(&self);

    /// Called before a process that is no thread shares the memory: others may be inside.
    fn note_sharing(&self);
}

/// The present members.
static MEMBERS: uruk_base::locks::Mutex<Vec<Weak<dyn ForkMember>>> =
    uruk_base::locks::Mutex::new(Vec::new());

/// Called in children that are whole.
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Sets `run` to be called in each whole child, before its program goes on.
pub(crate) fn on_child(run: fn()) {
    // The first call counts.
    let _ = IN_CHILD.set(run);
}

/// Adds a member, which is kept whole from now on. Under a pass of [`begin`].
pub(crate) fn join(member: Weak<dyn ForkMember>) {
    let mut members = MEMBERS.lock();
    members.retain(|member| member.strong_count() != 0);
    members.push(member);
}

/// The present members; the list is unlocked on return.
fn members() -> Vec<Arc<dyn ForkMember>> {
    let held = MEMBERS.lock();
    held.iter().filter_map(Weak::upgrade).collect()
}

/// Makes the end of the process wait for background compiles, if there is a member then that needs
/// it. To be called when the first is about to begin: LLVM's objects made until then are destroyed
/// after this runs.
pub(crate) fn wait_at_exit() {
    extern "C" fn at_exit() {
        let pass = enter();
        let members = members();
        members.iter().for_each(|member| member.wind_down());
        let waits = members.iter().any(|member| member.waits_at_exit());
        drop(members);
        drop(pass);
        if waits {
            debug!("the end of the process waits for compiles under way");
            settle(LAST_COMPILES);
        }
    }
    static ONCE: Once = Once::new();
    // SAFETY: a function that lives as long as the process.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

thread_local! {
    /// It has no destructor, which the C library would note under the dynamic loader's lock: the
    /// holder of that lock, for as long as constructors of a library run, may wait for the fork.
    static FORK: Cell<Option<ManuallyDrop<ForkState>>> = const { Cell::new(None) };
    static BARE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, children that this thread forks are bare.
pub(crate) struct Bare(());

/// Makes children bare: a bare child ends without running anything that a member would serve, and
/// gets no threads.
pub(crate) fn bare() -> Bare {
    BARE.set(true);
    Bare(())
}

impl Drop for Bare {
    fn drop(&mut self) {
        BARE.set(false);
    }
}

/// Whether a member lacks threads for first calls. Relaxed: a call that reads too early fails, or
/// looks again while it waits.
static UNSERVED: AtomicBool = AtomicBool::new(false);

/// Makes each first call try to start the threads of the members that lack them.
pub(crate) fn note_unserved() {
    UNSERVED.store(true, Ordering::Relaxed);
}

/// Called by first calls before they wait, on any stack and in any handler: makes sure that this
/// process is whole, and that threads answer calls, if they can be started.
///
/// It has no destructors, and can be unwound, as a first call must ([`uruk_stubs`]).
pub(crate) extern "C-unwind" fn attend_call() {
    unseen::attend();
    if UNSERVED.load(Ordering::Relaxed) {
        serve_again();
    }
}

/// It uses the allocator, like [`unseen::attend`] in a child: a handler that interrupted the
/// allocator must not be the first to call a function there.
#[cold]
#[inline(never)]
fn serve_again() {
    // SAFETY: the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let members = {
        let _pass = enter();
        UNSERVED.store(false, Ordering::Relaxed);
        let members = members();
        for member in &members {
            if !Arc::clone(member).serve() {
                note_unserved();
            }
        }
        members
    };
    // A last handle ends its session, which waits for passes.
    drop(members);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The locks of the forking thread between `prepare` and the other side; dropped in order.
struct ForkState {
    _cover: Cover,
    closed: MutexGuard<'static, GateState>,
    _shield: Shield,
    /// Dropped after the gate is open: the program may have dropped its handles of a session meanwhile,
    /// and the end of a session waits for passes.
    members: Vec<Arc<dyn ForkMember>>,
    seen: HeldMembers,
}

/// Members that were looked at while the gate's lock was held.
type HeldMembers = Vec<Arc<dyn ForkMember>>;

/// Repairs the guarded calls of the thread that forked, in the child.
static REPAIR_CALLS: OnceLock<fn()> = OnceLock::new();

/// The pass under which a session is made and started. In children of forks `repair_calls` is called
/// before anything else is repaired.
pub(crate) fn begin(repair_calls: fn()) -> Pass {
    // Each session gives the same one.
    let _ = REPAIR_CALLS.set(repair_calls);
    register_fork_handlers();
    uruk_roots::learn_contexts();
    let pass = enter();
    // Installs handlers once, which a child of fork would wait for.
    fatal::guard(|_| {}, || {});
    pass
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

/// Makes forks wait for passes, and both sides find their members whole.
pub(crate) fn register_fork_handlers() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        unseen::prepare();
        threads::note_process();
        // SAFETY: three functions that live as long as the process. Registered before
        // any guest code runs: ours then run last before a fork and first after it.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        uruk_base::locks::demand(shield::is_interruptible);
        uruk_base::locks::supply(gate::SOURCE);
        fatal::demand();
    });
}

/// Waits until the process may be copied, and closes the gate.
fn close() -> (MutexGuard<'static, GateState>, Cover, HeldMembers) {
    let start = Instant::now();
    let seen = RefCell::new(HeldMembers::new());
    let look = || {
        let members = members();
        seen.borrow_mut().extend(members.iter().cloned());
        members
    };
    let interrupt = || look().iter().for_each(|member| member.interrupt());
    let may_fork = || {
        let tasks = look().iter().any(|member| member.has_tasks());
        errands::may_fork(start, tasks)
    };
    let (closed, cover) = gate::close(interrupt, may_fork);
    (closed, cover, seen.into_inner())
}

unsafe extern "C" fn before_fork() {
    // Until both sides are whole: a handler would wait for workers, and they for the gate.
    let shield = Shield::raise();
    // Also a child that is itself not whole yet.
    unseen::attend();
    let (closed, cover, seen) = close();
    let members = members();
    members.iter().for_each(|member| member.before_fork());
    uruk_unwind::before_fork();
    let state = ForkState {
        _cover: cover,
        closed,
        _shield: shield,
        members,
        seen,
    };
    FORK.set(Some(ManuallyDrop::new(state)));
}

unsafe extern "C" fn in_parent() {
    if let Some(state) = FORK.take().map(ManuallyDrop::into_inner) {
        uruk_unwind::after_fork();
        state
            .members
            .iter()
            .for_each(|member| member.after_fork_parent());
    }
}

unsafe extern "C" fn in_child() {
    if sandbox::is_closed() {
        // Nothing is compiled, so nothing is written that parent and child share.
        FORK.with(|state| {
            let held = state.take().map(ManuallyDrop::into_inner);
            state.set(held.map(|mut held| {
                held.closed.after_fork_child();
                ManuallyDrop::new(held)
            }));
        });
        unseen::mark();
        // SAFETY: this side's turn.
        return unsafe { in_parent() };
    }
    if let Some(state) = FORK.take().map(ManuallyDrop::into_inner) {
        unseen::mark();
        if let Some(repair) = REPAIR_CALLS.get() {
            repair();
        }
        made_in_child(state);
    }
}

/// Makes a child whole, with the locks that it was made under.
fn made_in_child(mut state: ForkState) {
    uruk_unwind::after_fork();
    state.closed.after_fork_child();
    if BARE.get() {
        // No session is repaired here, so none may end here: another thread may have dropped its
        // last handle meanwhile, and the end would wait for threads that do not exist.
        std::mem::forget(std::mem::take(&mut state.members));
        std::mem::forget(std::mem::take(&mut state.seen));
        return;
    }
    errands::after_fork_child();
    threads::after_fork_child();
    sacrificial::after_fork_child();
    UNSERVED.store(false, Ordering::Relaxed);
    thread::after_fork_child();
    confine::after_fork_child();
    for member in &state.members {
        member.after_fork_child();
    }
    if !sandbox::is_closed() {
        let members = state.members.iter();
        members.for_each(|member| Arc::clone(member).restart());
        if let Some(run) = IN_CHILD.get() {
            run();
        }
    }
}
