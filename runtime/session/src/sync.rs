//! The synchronization primitives of this package, in one place so that a model checker can replace
//! them (`--cfg loom`).
//!
//! Locks are std's: a futex word each and nothing process-wide, so a child of `fork` finds no
//! half-changed table of parked threads. Each is taken under a cover ([`uruk_base::locks`]).
//! Embedders arrive through their own handles, units and generators without a cover, and get one
//! while they hold the lock. Waits have none. A panic under a lock is a bug of the library. The
//! lock is then taken as it is, as the rest of the session serves the embedder better than a second
//! panic.

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(loom)]
use loom::sync as raw;
use std::marker::PhantomData;
#[cfg(not(loom))]
use std::sync as raw;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

#[cfg(not(loom))]
use uruk_base::locks::Ordered;
use uruk_base::locks::{Covered, Leaf, Rank, uncovered};

/// A lock that is not poisoned by panics.
#[derive(Debug)]
pub(crate) struct Mutex<T, R: Rank = Leaf>(raw::Mutex<T>, PhantomData<fn() -> R>);

impl<T, R: Rank> Mutex<T, R> {
    pub(crate) fn new(value: T) -> Self {
        Self(raw::Mutex::new(value), PhantomData)
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let covered = Covered::ensure();
        #[cfg(not(loom))]
        let order = Ordered::wait::<T, R>();
        MutexGuard {
            guard: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            #[cfg(not(loom))]
            _order: order,
            _covered: covered,
        }
    }
}

/// The lock is released before the cover.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    guard: raw::MutexGuard<'a, T>,
    /// Not under loom, whose threads share one thread of the system.
    #[cfg(not(loom))]
    _order: Ordered,
    _covered: Covered,
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

const NONE: u32 = 0;
/// A thread waits for the token.
const AWAITED: u32 = 1;
const THERE: u32 = 2;

/// A binary token: `unpark` leaves it, `park` waits for it and takes it.
///
/// A wake-up that comes before the wait is kept. `unpark` makes a system call only if a thread
/// waits. Where several threads park, the one that takes the token leaves a new one.
///
/// | `token` | written by | when | ordering |
/// |---|---|---|---|
/// | `THERE` | `unpark` | always | release: pairs with the acquire exchange in `take`; a woken thread sees the cause |
/// | `AWAITED` | `park` | no token is there, before it sleeps | relaxed: says only that a wake-up is wanted |
/// | `NONE` | `park` | it takes the token | as above |
#[derive(Debug)]
pub(crate) struct Parker {
    token: AtomicU32,
    #[cfg(loom)]
    sleeper: (raw::Mutex<()>, raw::Condvar),
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            token: AtomicU32::new(NONE),
            #[cfg(loom)]
            sleeper: (raw::Mutex::new(()), raw::Condvar::new()),
        }
    }

    fn take(&self) -> bool {
        let (taken, seen) = (Ordering::Acquire, Ordering::Relaxed);
        let token = &self.token;
        token.compare_exchange(THERE, NONE, taken, seen).is_ok()
    }

    /// Waits until a token arrives and takes it.
    pub(crate) fn park(&self) {
        if self.take() {
            return;
        }
        // The thread that leaves the token may fork first, or be a handler on this thread.
        uncovered(|| {
            while !self.take() {
                let relaxed = Ordering::Relaxed;
                let _ = self.token.compare_exchange(NONE, AWAITED, relaxed, relaxed);
                self.sleep();
            }
        });
    }

    /// Leaves a token; two before a `park` are one.
    pub(crate) fn unpark(&self) {
        if self.token.swap(THERE, Ordering::Release) == AWAITED {
            self.wake();
        }
    }

    #[cfg(not(loom))]
    fn sleep(&self) {
        atomic_wait::wait(&self.token, AWAITED);
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        atomic_wait::wake_all(&self.token);
    }

    /// The behaviour of a futex, for the model checker.
    #[cfg(loom)]
    fn sleep(&self) {
        let (lock, changed) = &self.sleeper;
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.token.load(Ordering::Relaxed) == AWAITED {
            drop(changed.wait(held));
        }
    }

    #[cfg(loom)]
    fn wake(&self) {
        let (lock, changed) = &self.sleeper;
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }
}
