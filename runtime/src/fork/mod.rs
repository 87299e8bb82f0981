//! Threads of ours, and processes that are copied while they run.
//!
//! Nothing here knows what a session is: whoever has threads, locks or memory that a copy of
//! the process must find whole is a [`Member`].
//!
//! | file | holds |
//! |---|---|
//! | [`gate`] | passes: who is inside, and waiting until nobody is |
//! | [`errands`] | work that a fork would cut off outside of passes |
//! | [`shield`] | the program's signals, held back from threads inside |
//! | this one | both sides of `fork` |
//! | [`unseen`] | children that are made past `fork` |
//! | [`thread`] | threads of ours; [`sacrificial`]: one that LLVM may take down |
//! | [`panics`] | what a panic on them comes to |
//! | [`futex`] | a word to wait for |
//! | [`confine`] | the end of all threads of ours, before the process gives up system calls |
//!
//! Entry: [`join`], once for each session; [`gate::enter`] everywhere.

pub(crate) mod confine;
pub(crate) mod errands;
pub(crate) mod futex;
pub(crate) mod gate;
pub(crate) mod panics;
pub(crate) mod sacrificial;
pub(crate) mod shield;
pub(crate) mod thread;
pub(crate) mod unseen;

use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::{Arc, MutexGuard, Once, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use uruk_base::locks::Cover;
use uruk_base::sandbox;
use uruk_codegen::fatal;

use crate::guest::threads;
use gate::{GateState, Pass, enter, settle};
use shield::Shield;

/// How long the end of a session, or of the process, waits for compiles under way.
pub(crate) const LAST_COMPILES: Duration = Duration::from_secs(10);

/// Something that both sides of a fork find whole: a session. All are called by the thread
/// that forks, or copied itself, with nobody else inside.
pub(crate) trait Member: Send + Sync {
    /// Begins no compile any more that nobody waits for.
    fn wind_down(&self);

    /// Has compiles under way that nobody waits for end early. Others may be inside.
    fn interrupt(&self);

    /// Whether other threads run tasks of the library that may be outside, because they wait.
    fn has_tasks(&self) -> bool;

    /// Locks what is to be whole.
    fn before_fork(&self);

    /// The same in a child where nobody did it before; false if that cannot be.
    fn before_fork_in_child(&self) -> bool;

    /// Unlocks it in the parent.
    fn after_fork_parent(&self);

    /// Makes it right in the child, where no other thread is.
    fn after_fork_child(&self);

    /// Has threads again, in the child.
    fn restart(self: Arc<Self>);

    /// Compiles what has no code yet, and says of what cannot be compiled that it never will be.
    /// Without a pass, on a thread of ours; others may be inside.
    fn finish_code(self: Arc<Self>);

    /// Ends the threads of the member, which has none from now on. Without a pass, on a thread of
    /// ours.
    fn end_threads(&self);

    /// A process that is no thread is about to share the memory: others may be inside.
    fn note_sharing(&self);
}

/// The members there are.
static MEMBERS: uruk_base::locks::Mutex<Vec<Weak<dyn Member>>> =
    uruk_base::locks::Mutex::new(Vec::new());

/// Called in children that are whole.
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Has `run` called in each whole child, before its program goes on.
pub(crate) fn on_child(run: fn()) {
    // The first counts.
    let _ = IN_CHILD.set(run);
}

/// From now on the member is kept whole. Under a pass of [`begin`].
pub(crate) fn join(member: Weak<dyn Member>) {
    let mut members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    members.retain(|member| member.strong_count() != 0);
    members.push(member);
}

/// The members there are; the list is not locked any more.
fn members() -> Vec<Arc<dyn Member>> {
    let held = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    held.iter().filter_map(Weak::upgrade).collect()
}

fn interrupt() {
    members().iter().for_each(|member| member.interrupt());
}

/// Has the end of the process wait for background compiles. To be called when the
/// first is about to begin: what LLVM made until then is destroyed later than this
/// runs. The command has no need, it never destroys LLVM's objects.
pub(crate) fn wait_at_exit() {
    extern "C" fn at_exit() {
        let pass = enter();
        let members = members();
        members.iter().for_each(|member| member.wind_down());
        drop(members);
        drop(pass);
        settle(LAST_COMPILES);
    }
    static ONCE: Once = Once::new();
    // SAFETY: a function that lives as long as the process.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

thread_local! {
    /// It has no destructor, which the C library would note under the dynamic loader's lock:
    /// whoever has that, for as long as constructors of a library run, may wait for the fork.
    static FORK: Cell<Option<ManuallyDrop<ForkState>>> = const { Cell::new(None) };
    static BARE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, children that this thread forks are bare.
pub(crate) struct Bare(());

/// A bare child ends without running anything that a member would serve: it gets no threads.
pub(crate) fn bare() -> Bare {
    BARE.set(true);
    Bare(())
}

impl Drop for Bare {
    fn drop(&mut self) {
        BARE.set(false);
    }
}

/// What the forking thread holds between `prepare` and the other side; goes in order.
struct ForkState {
    members: Vec<Arc<dyn Member>>,
    _cover: Cover,
    closed: MutexGuard<'static, GateState>,
    _shield: Shield,
}

/// The pass under which a session is made and started.
pub(crate) fn begin() -> Pass {
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

/// Has forks wait for passes, and both sides find their members whole.
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
fn close() -> (MutexGuard<'static, GateState>, Cover) {
    let start = Instant::now();
    let may_fork = || {
        let tasks = members().iter().any(|member| member.has_tasks());
        errands::may_fork(start, tasks)
    };
    gate::close(interrupt, may_fork)
}

unsafe extern "C" fn before_fork() {
    // Until both sides are whole: a handler would wait for workers, and they for the gate.
    let shield = Shield::raise();
    // Also a child that is itself not whole yet.
    unseen::attend();
    let (closed, cover) = close();
    let members = members();
    members.iter().for_each(|member| member.before_fork());
    uruk_unwind::before_fork();
    let state = ForkState {
        members,
        _cover: cover,
        closed,
        _shield: shield,
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
        crate::calls::interrupt::after_fork_child();
        made_in_child(state);
    }
}

/// Makes a child whole, with the locks that it was made under.
fn made_in_child(mut state: ForkState) {
    uruk_unwind::after_fork();
    state.closed.after_fork_child();
    if BARE.get() {
        return;
    }
    errands::after_fork_child();
    threads::after_fork_child();
    sacrificial::after_fork_child();
    thread::rest::after_fork_child();
    confine::after_fork_child();
    for member in &state.members {
        member.after_fork_child();
    }
    if !sandbox::is_closed() {
        state.members.into_iter().for_each(Member::restart);
        if let Some(run) = IN_CHILD.get() {
            run();
        }
    }
}
