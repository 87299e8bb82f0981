//! Counts of a thread's covers and held locks, and the check of one against the other.

use std::cell::Cell;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::order::{Ordered, Rank};

thread_local! {
    /// Covers of this thread.
    static COVERS: Cell<usize> = const { Cell::new(0) };
    /// Locks this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Tells whether a handler may interrupt the calling thread; set by [`demand`].
static INTERRUPTIBLE: OnceLock<fn() -> bool> = OnceLock::new();

/// Demands a [`Cover`] for each lock from now on. Covers may then be made only where
/// `interruptible` answers that no handler of the program can interrupt the calling thread. Call it
/// once forks wait for covers; before that, a fork may come at any time.
pub fn demand(interruptible: fn() -> bool) {
    // The first function is as good as any.
    let _ = INTERRUPTIBLE.set(interruptible);
}

/// Functions that make covers for threads without one.
#[derive(Debug)]
pub struct Source {
    /// Gives the calling thread a cover.
    pub enter: fn(),
    /// Takes that cover back.
    pub leave: fn(),
    /// Runs its argument while the calling thread has no cover, even if it had some before; not
    /// called while a lock is held.
    pub outside: fn(&mut dyn FnMut()),
}

/// The source of covers; set by [`supply`].
static SOURCE: OnceLock<Source> = OnceLock::new();

/// Registers the source of covers: from now on a [`Covered`] takes one from `source` if its thread
/// has none.
pub fn supply(source: Source) {
    // The first is as good as any: a process has one gate.
    let _ = SOURCE.set(source);
}

/// A cover for one stay, the thread's own or a new one. It is for locks that an embedder can reach
/// without passing the gate.
#[derive(Debug)]
pub struct Covered {
    own: bool,
    _stays: PhantomData<*const ()>,
}

impl Covered {
    /// Takes a cover from the source, unless the calling thread has one or no source is registered.
    #[inline]
    pub fn ensure() -> Covered {
        let own = COVERS.get() == 0 && Covered::take();
        Covered {
            own,
            _stays: PhantomData,
        }
    }

    #[cold]
    fn take() -> bool {
        let source = SOURCE.get();
        if let Some(source) = source {
            (source.enter)();
        }
        source.is_some()
    }
}

impl Drop for Covered {
    #[inline]
    fn drop(&mut self) {
        if self.own
            && let Some(source) = SOURCE.get()
        {
            (source.leave)();
        }
    }
}

/// Runs `work` without any cover of the calling thread, unless it holds a lock. It is for waits
/// that another thread ends, because that thread may fork first, and for foreign code.
pub fn uncovered<R>(work: impl FnOnce() -> R) -> R {
    let source = SOURCE
        .get()
        .filter(|_| COVERS.get() != 0 && HELD.get() == 0);
    let Some(source) = source else { return work() };
    let mut work = Some(work);
    let mut result = None;
    (source.outside)(&mut || result = work.take().map(|work| work()));
    result.expect("the source runs what it is given")
}

/// Removes all covers of the calling thread; returns their number. The thread must hold no lock.
pub fn lay_down() -> usize {
    if HELD.get() != 0 && is_demanded() {
        give_up("covers are laid down under a lock", FORKS);
    }
    COVERS.replace(0)
}

/// Restores covers that [`lay_down`] removed.
pub fn take_up(covers: usize) {
    COVERS.set(covers);
}

/// The number of covers of the calling thread.
pub fn covers() -> usize {
    COVERS.get()
}

/// The number of these locks that the calling thread holds.
pub fn held() -> usize {
    HELD.get()
}

/// Checks that the calling thread may take a lock, for locks of other kinds. Does nothing without
/// `debug_assertions`.
#[inline]
pub fn check() {
    if cfg!(debug_assertions) && COVERS.get() == 0 && is_demanded() {
        give_up("a lock is taken without a cover", FORKS);
    }
}

/// Allows the thread that made it to hold locks. Its maker ensures that no other thread forks while
/// it lives, and that no handler of the program interrupts this thread.
#[derive(Debug)]
pub struct Cover(PhantomData<*const ()>);

impl Cover {
    /// Adds a cover for the calling thread.
    #[expect(
        clippy::new_without_default,
        reason = "a cover is a promise, not a value to be filled in"
    )]
    pub fn new() -> Cover {
        if cfg!(debug_assertions) && INTERRUPTIBLE.get().is_some_and(|is| is()) {
            give_up("a cover is made where a handler may interrupt", FORKS);
        }
        COVERS.set(COVERS.get() + 1);
        Cover(PhantomData)
    }
}

impl Cover {
    /// The cover that was made and forgotten before, to be dropped.
    pub fn again() -> Cover {
        Cover(PhantomData)
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        let left = COVERS.get() - 1;
        let held = HELD.get();
        if left == 0 && held != 0 && is_demanded() {
            let what = format!("{held} locks are held when the last cover goes");
            give_up(&what, FORKS);
        }
        COVERS.set(left);
    }
}

/// Counts one lock as held while it lives.
#[derive(Debug)]
pub(crate) struct Held {
    order: Ordered,
}

impl Held {
    /// Counts the lock of a `T`; to be called before the thread waits for the lock.
    #[inline]
    pub(crate) fn wait<T, R: Rank>() -> Held {
        check();
        Held::with(Ordered::wait::<T, R>())
    }

    /// Like [`Held::wait`], for an attempt.
    #[inline]
    pub(crate) fn tried<T, R: Rank>() -> Held {
        check();
        Held::with(Ordered::tried::<T, R>())
    }

    /// Checks that the thread may wait for this lock again, after it unlocked it.
    #[inline]
    pub(crate) fn wait_again(&self) {
        self.order.wait_again();
    }

    #[inline]
    fn with(order: Ordered) -> Held {
        HELD.set(HELD.get() + 1);
        Held { order }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

fn is_demanded() -> bool {
    cfg!(debug_assertions) && INTERRUPTIBLE.get().is_some()
}

/// Reason for a cover.
const FORKS: &str = "a child of fork may find it locked, or a handler wait for it";

/// Ends the process with a message: `what` happened on this thread, which is wrong because of `why`.
#[cold]
pub(super) fn give_up(what: &str, why: &str) -> ! {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?");
    let trace = std::backtrace::Backtrace::force_capture();
    // Standard error, past a test's capture: the abort would lose captured text.
    let _ = writeln!(
        std::io::stderr(),
        "uruk: {what} (thread {name}): {why}\n{trace}"
    );
    std::process::abort()
}
