//! What a thread has: covers and held locks, and the check of one against the other.

use std::cell::Cell;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::OnceLock;

thread_local! {
    /// Covers of this thread.
    static COVERS: Cell<usize> = const { Cell::new(0) };
    /// Locks this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Tells whether a handler may interrupt the calling thread; set by [`demand`].
static INTERRUPTIBLE: OnceLock<fn() -> bool> = OnceLock::new();

/// From now on locks are taken under a [`Cover`] only, and covers made only where
/// `interruptible` answers that no handler of the program's can interrupt the calling
/// thread. To be called once forks are waited for; before, nobody could say when one
/// happens.
pub fn demand(interruptible: fn() -> bool) {
    // The first answer is as good as any.
    let _ = INTERRUPTIBLE.set(interruptible);
}

/// How covers are given out where none is at hand.
#[derive(Debug)]
pub struct Source {
    /// Leaves the calling thread with a cover.
    pub enter: fn(),
    /// Takes that cover back.
    pub leave: fn(),
    /// Runs its argument while the calling thread has no cover, whatever it had before; not
    /// called where a lock is held.
    pub outside: fn(&mut dyn FnMut()),
}

/// Who gives covers out; set by [`supply`].
static SOURCE: OnceLock<Source> = OnceLock::new();

/// From now on a [`Covered`] has a cover from `source` where its thread has none.
pub fn supply(source: Source) {
    // The first is as good as any: there is one gate in a process.
    let _ = SOURCE.set(source);
}

/// A stay under a cover, the thread's own or one of its own: for locks that whoever embeds the
/// library can reach without coming in at the gate.
#[derive(Debug)]
pub struct Covered {
    own: bool,
    _stays: PhantomData<*const ()>,
}

impl Covered {
    /// Has a cover made unless the calling thread has one, or nobody gives covers out.
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

/// Runs `work` without any cover of the calling thread's, unless it holds a lock: for waits that
/// another thread ends, which may fork before it does, and for code that is not ours.
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

/// Takes all covers of the calling thread away; how many there were. It holds no lock.
pub fn lay_down() -> usize {
    if HELD.get() != 0 && is_demanded() {
        give_up("covers are laid down under a lock");
    }
    COVERS.replace(0)
}

/// Gives covers back that were [laid down](lay_down).
pub fn take_up(covers: usize) {
    COVERS.set(covers);
}

/// How many covers the calling thread has.
pub fn covers() -> usize {
    COVERS.get()
}

/// How many of these locks the calling thread holds.
pub fn held() -> usize {
    HELD.get()
}

/// For locks of other kinds: checks that the calling thread may take one. Does nothing
/// without `debug_assertions`.
#[inline]
pub fn check() {
    if cfg!(debug_assertions) && COVERS.get() == 0 && is_demanded() {
        give_up("a lock is taken without a cover");
    }
}

/// While it lives, the thread that made it may hold locks: whoever makes it sees to it that
/// no other thread forks meanwhile, and that no handler of the program's interrupts this
/// one.
#[derive(Debug)]
pub struct Cover(PhantomData<*const ()>);

impl Cover {
    /// One more for the calling thread.
    #[expect(
        clippy::new_without_default,
        reason = "a cover is a promise, not a value to be filled in"
    )]
    pub fn new() -> Cover {
        if cfg!(debug_assertions) && INTERRUPTIBLE.get().is_some_and(|is| is()) {
            give_up("a cover is made where a handler may interrupt");
        }
        COVERS.set(COVERS.get() + 1);
        Cover(PhantomData)
    }
}

impl Cover {
    /// One that was made and forgotten, to be given back.
    pub fn again() -> Cover {
        Cover(PhantomData)
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        let left = COVERS.get() - 1;
        let held = HELD.get();
        if left == 0 && held != 0 && is_demanded() {
            give_up(&format!("{held} locks are held when the last cover goes"));
        }
        COVERS.set(left);
    }
}

/// Counts one lock as held while it lives.
#[derive(Debug)]
pub(crate) struct Held(PhantomData<*const ()>);

impl Held {
    /// To be called before the lock is taken.
    #[inline]
    pub(crate) fn new() -> Held {
        check();
        HELD.set(HELD.get() + 1);
        Held(PhantomData)
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

#[cold]
fn give_up(what: &str) -> ! {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?");
    let trace = std::backtrace::Backtrace::force_capture();
    // Past what a test captures: that would be lost.
    let _ = writeln!(
        std::io::stderr(),
        "uruk: {what} (thread {name}): a child of fork may find it locked, or a handler wait for it\n{trace}"
    );
    std::process::abort()
}
