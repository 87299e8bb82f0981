//! Locks for code around `fork` and signal handlers, and checks of their use. No `fork` may find
//! one held, and no handler may find one held by the thread it interrupted.
//!
//! A child of `fork` has one thread. A lock that another thread held at that moment stays locked
//! there for ever. So a thread takes these locks only under a [`Cover`], and `fork` waits until no
//! other thread has one: the facade hands covers out at its gate.
//!
//! A handler of the program may call a function for the first time, and then waits for a worker,
//! which may need any lock. If the interrupted thread held that lock, all three would wait for
//! ever. So signals are blocked while a thread has a cover.
//!
//! Invariants, checked wherever `debug_assertions` are on, from [`demand`] on:
//! 1. A thread that takes a lock has a cover.
//! 2. A thread whose last cover is dropped holds no lock.
//! 3. A cover is made only where no handler of the program's can run.
//!
//! A violation is reported on standard error, with a backtrace, and ends the process: the thread
//! may hold a lock that a child of the next fork waits for. Without `debug_assertions`, and before
//! `demand`, the locks are `std`'s: one futex word each, nothing process-wide.
//!
//! Covers and held locks are counted by thread ([`count`]). Neither can leave its thread.
//!
//! # Order
//! Each lock has a [`Rank`], as a parameter of its type ([`ranks`]); a lock without one is a
//! [`Leaf`]. Wherever `debug_assertions` are on, a thread that waits for a lock whose rank is not
//! above the ranks of all locks it holds ends the process, with the names of both ([`Ordered`]).
//! `docs/threads.md` lists the same ranks.
//!
//! Packages with locks of another kind [`check`] them, and document how they keep forks out. In
//! `uruk-heap` and `uruk-unwind` the forking thread takes the lock. The locks of `uruk-session` can
//! be reached from outside of the library, so each is taken under a cover of its own if the thread
//! has none ([`Covered`]).
//!
//! # Why
//! `std`'s locks, not `parking_lot`'s or crossbeam's, wherever a fork may find them held: their
//! whole state is one word, while `parking_lot` keeps waiters in a table of the process. The
//! tables that need no lock are atomics of our own packages.

mod count;
mod lock;
mod mark;
mod order;
pub mod ranks;

pub use count::{
    Cover, Covered, Source, check, covers, demand, held, lay_down, supply, take_up, uncovered,
};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use mark::thread_mark;
pub use order::{Leaf, Ordered, Rank};
