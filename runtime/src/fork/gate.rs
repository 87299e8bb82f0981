//! The gate: counts the threads inside the library, so that a fork can wait until none is.
//!
//! A thread holds a pass around each operation. `fork` closes the gate, so that at the moment of
//! the fork no other thread is inside LLVM or holds any lock. Locks are `uruk_base::locks`': a
//! debug build ends where one is taken without a pass.
//!
//! - Under a pass no signal handler of the program runs ([`shield`]): it may wait for a worker,
//!   which may wait for a lock of the interrupted thread. A thread that waits for another thread
//!   without holding a lock lets handlers run.
//! - A thread with a pass gets more without waiting: the gate counts threads. So a thread inside
//!   may wait for others that are inside or have yet to enter: the gate is not closed before it is
//!   empty.
//! - The gate's own lock is held by the forking thread from the moment the gate is empty until both
//!   sides are whole.
//! - A fork that has waited for a while interrupts background compiles. New work in the background,
//!   such as an interrupted compile, lets waiting forks go first ([`enter_after_forks`]): a thread
//!   that leaves would be inside again before the fork looks.
//! - A thread that forks inside does not wait for itself. Listeners must not fork all the same:
//!   they may be called under a lock that the two sides take.
//! - Tasks that wait for other threads are outside, and a fork waits for them as well
//!   ([`super::errands`]).
//! - A thread that LLVM took down never returns: it is subtracted from the count ([`leave_lost`]).
//!
//! | field | writer | meaning |
//! |---|---|---|
//! | `GateState::inside` | a thread that enters or leaves, lost threads last | threads inside |
//! | `GateState::awaited` | a thread that waits for `inside` to fall | waiters to wake when it does |
//! | `GateState::idle` | the last thread that leaves | how often no thread was inside |
//! | `GateState::begun`, `ended` | a forking thread, before it waits and after | forks wait, if they differ |
//!
//! # Why
//! `fork` waits 20 ms for compiles under way, then interrupts background ones, each once. The rest
//! is one pass of LLVM: 0.12 s at worst for Lua's interpreter loop.

use std::mem::ManuallyDrop;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use uruk_base::locks::{Cover, Ordered, ranks};

use super::shield::{self, Shield};
use super::{thread, unseen};
use crate::fork::threads;

/// How long a fork waits for compiles under way before it interrupts them.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// How long a fork admits other threads whose tasks must end.
const AGAIN: Duration = Duration::from_micros(100);

/// Longest time of a look at the gate by a thread of the program.
const GLANCE: Duration = Duration::from_millis(1);

static GATE: Gate = Gate {
    state: Mutex::new(GateState {
        inside: 0,
        awaited: 0,
        begun: 0,
        ended: 0,
        idle: 0,
    }),
    left: Condvar::new(),
};
/// Counts the threads inside; its lock is held around `fork`. Not a read-write lock: the last code
/// of a thread that LLVM took down must subtract that thread ([`leave_lost`]).
struct Gate {
    state: Mutex<GateState>,
    left: Condvar,
}

pub(super) struct GateState {
    inside: usize,
    awaited: usize,
    begun: u64,
    ended: u64,
    idle: u64,
}

impl GateState {
    /// In the child of a fork: no other thread waits.
    pub(super) fn after_fork_child(&mut self) {
        self.awaited = 0;
        self.ended = self.begun;
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        debug_assert!(!shield::is_interruptible(), "a handler would find it held");
        // Only the forking thread takes other locks under this one: see `close`.
        drop(in_order());
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self) {
        let mut state = self.lock();
        state.inside -= 1;
        state.idle += u64::from(state.inside == 0);
        if state.awaited != 0 {
            self.left.notify_all();
        }
    }

    /// Waits until no more than `own` threads are inside, at most for `limit`, and returns the
    /// lock, which keeps others out, also if the limit is over.
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
        // A poisoned lock is usable: nothing panics under it.
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

    /// Admits other threads, until one of them has left or for a moment.
    fn pause<'a>(&'a self, mut state: MutexGuard<'a, GateState>) -> MutexGuard<'a, GateState> {
        state.awaited += 1;
        let waited = self.left.wait_timeout(state, AGAIN);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.awaited -= 1;
        state
    }
}

/// The right to take locks, and to compile. While it is held, no other thread forks and no signal
/// handler of the program runs on this one. It stays on its thread.
pub(crate) struct Pass {
    cover: ManuallyDrop<Cover>,
    /// Dropped last.
    _shield: Shield,
}

impl Drop for Pass {
    fn drop(&mut self) {
        // SAFETY: not used after this. First, as it checks that no lock is held any more.
        unsafe { ManuallyDrop::drop(&mut self.cover) };
        if uruk_base::locks::covers() == 0 {
            GATE.leave();
        }
    }
}

/// Waits until no fork is under way.
pub(crate) fn enter() -> Pass {
    let shield = Shield::raise();
    if uruk_base::locks::covers() == 0 {
        unseen::attend();
        GATE.lock().inside += 1;
    }
    Pass {
        cover: ManuallyDrop::new(Cover::new()),
        _shield: shield,
    }
}

/// Like [`enter`], but waits for pending forks first. For threads on whose work no thread inside
/// waits: a fork waits for all threads inside.
pub(crate) fn enter_after_forks() -> Pass {
    let _shield = Shield::raise();
    if uruk_base::locks::covers() == 0 {
        wait_for_forks();
    }
    enter()
}

/// Lets pending forks go on, also past this thread, and waits until they have ended. Does nothing
/// while it holds a lock.
pub(crate) fn give_way_to_forks() {
    outside(|| {
        let _shield = Shield::raise();
        if uruk_base::locks::covers() == 0 {
            wait_for_forks();
        }
    });
}

fn wait_for_forks() {
    let state = GATE.lock();
    let before = state.begun;
    let waits = |state: &mut GateState| state.ended < before;
    drop(GATE.left.wait_while(state, waits));
}

/// Whether a fork waits for threads inside.
pub(crate) fn is_fork_awaited() -> bool {
    let _shield = Shield::raise();
    let state = GATE.lock();
    state.begun != state.ended
}

/// Gives a pass to locks that embedders reach.
pub(super) const SOURCE: uruk_base::locks::Source = uruk_base::locks::Source {
    enter: || std::mem::forget(enter()),
    leave: || {
        // A pass made by `enter` above; it consists of its two counts only.
        drop(Pass {
            cover: ManuallyDrop::new(Cover::again()),
            _shield: Shield::again(),
        });
    },
    outside: |work| outside(work),
};

/// Runs code of others, or a wait that such code ends, without the passes of this thread and with
/// the program's signal mask; unless the thread holds a lock.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    /// Enters again, also when `work` panics.
    struct Again(usize);

    impl Drop for Again {
        fn drop(&mut self) {
            unseen::attend();
            GATE.lock().inside += 1;
            uruk_base::locks::take_up(self.0);
        }
    }

    if uruk_base::locks::covers() == 0 || uruk_base::locks::held() != 0 {
        return work();
    }
    let covers = uruk_base::locks::lay_down();
    GATE.leave();
    let _again = Again(covers);
    // The shield is raised again first.
    shield::lowered(work)
}

/// The pass of a value that is being dropped, as its last field.
#[derive(Default)]
pub(crate) struct End(Option<Passing>);

impl Clone for End {
    /// A clone belongs to another value, which is not being dropped.
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

/// A pass in a value that may move to another thread.
struct Passing(Pass);

// SAFETY: it is made when the value is dropped, and dropped before that ends, on one thread.
unsafe impl Send for Passing {}
// SAFETY: a shared reference allows nothing.
unsafe impl Sync for Passing {}

/// How often no thread was inside. Once it has grown, all threads have left that were inside.
pub(crate) fn idle() -> u64 {
    let _shield = Shield::raise();
    GATE.lock().idle
}

/// Waits until no other thread compiles or reports a compile, at most for `limit`. Signals of the
/// calling thread are held back for [`GLANCE`] at a time.
pub(crate) fn settle(limit: Duration) {
    let start = Instant::now();
    let own = usize::from(uruk_base::locks::covers() != 0);
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let _shield = Shield::raise();
        let state = GATE.close(own, Some(left.min(GLANCE)));
        if state.inside <= own || left.is_zero() {
            return;
        }
    }
}

/// Subtracts a thread that LLVM took down inside its pass, as its last action: it never returns the
/// pass.
pub(crate) fn leave_lost() {
    threads::note_lost();
    thread::serving::leave_lost();
    if uruk_base::locks::covers() != 0 {
        GATE.leave();
    }
}

/// Checks and records the place of the gate's lock in the order of locks.
fn in_order() -> Ordered {
    Ordered::wait::<GateState, ranks::Gate>()
}

/// Waits until no other thread is inside and `may_fork` is true, and keeps all out; `interrupt`
/// ends compiles that take long.
pub(super) fn close(
    interrupt: impl FnOnce(),
    may_fork: impl Fn() -> bool,
) -> (MutexGuard<'static, GateState>, Cover) {
    let own = usize::from(uruk_base::locks::covers() != 0);
    let mut state = GATE.lock();
    // Dropped once all others are outside: then no thread waits for a lock of the forking thread.
    let _order = in_order();
    state.begun += 1;
    let mut closed = GATE.wait(state, own, Some(PATIENCE));
    let cover = Cover::new();
    if closed.inside > own {
        // A thread that forks inside may hold any lock. Others hold none, and threads that hold one
        // never wait for the gate.
        if own == 0 {
            interrupt();
        }
        closed = GATE.wait(closed, own, None);
    }
    // A thread that forks inside may be the one that the others wait for.
    while own == 0 && !may_fork() {
        closed = GATE.pause(closed);
        closed = GATE.wait(closed, own, None);
    }
    // Woken threads go on when both sides are whole: until then the lock is held.
    closed.ended += 1;
    GATE.left.notify_all();
    (closed, cover)
}

/// Closes the gate in a child of a copy, where no thread closed it before; `None` if another thread
/// was inside at that moment.
pub(super) fn close_in_copy() -> Option<MutexGuard<'static, GateState>> {
    let own = usize::from(uruk_base::locks::covers() != 0);
    let mut closed = match GATE.state.try_lock() {
        Ok(closed) => closed,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    closed.after_fork_child();
    (closed.inside <= own).then_some(closed)
}
