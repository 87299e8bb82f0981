//! Locks that no `fork` may find held, that no handler may find held by the thread it
//! interrupted, and the check of both.
//!
//! A child of `fork` has one thread. A lock that another thread held at that moment stays
//! locked there for ever. So a thread takes these locks only under a [`Cover`], and `fork`
//! waits until no other thread has one: the façade gives covers out at its gate.
//!
//! A handler of the program's may call a function for the first time, and then waits for a
//! worker, which may need any lock. If the thread it interrupted held that lock, all three
//! would wait for ever. So signals are held back where there is a cover.
//!
//! Invariants, checked wherever `debug_assertions` are on, from [`demand`] on:
//! 1. A thread that takes a lock has a cover.
//! 2. A thread whose last cover goes holds no lock.
//! 3. A cover is made only where no handler of the program's can run.
//!
//! What breaks one is said on standard error, with a backtrace, and ends the process: the
//! thread may hold what a child of the next fork waits for. Without `debug_assertions`, and
//! before `demand`, the locks are `std`'s: one futex word each, nothing process-wide.
//!
//! Covers and held locks are counted by thread ([`count`]). Neither can leave its thread.
//!
//! Packages whose locks are not of this kind [`check`] them, and say themselves what keeps a
//! fork away: `uruk-heap` and `uruk-unwind` have the forking thread take theirs. Those of
//! `uruk-session` can be reached from outside of the library, and so are each taken under a
//! cover of their own where there is none ([`Covered`]).
//!
//! # Why
//! `std`'s locks, not `parking_lot`'s or crossbeam's, wherever a fork may find them held: their
//! whole state is one word, while `parking_lot` keeps waiters in a table of the process. The
//! tables that need no lock are atomics of our own packages.

mod count;
mod lock;
mod mark;

pub use count::{
    Cover, Covered, Source, check, covers, demand, held, lay_down, supply, take_up, uncovered,
};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use mark::thread_mark;
