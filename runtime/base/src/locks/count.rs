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
