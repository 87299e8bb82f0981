//! The primitives of this package, in one place so that a model checker can
//! stand in for them (`--cfg loom`).
//!
//! Locks are std's: a futex word each and nothing process-wide, so a child of
//! `fork` finds no half-changed table of parked threads. Each is taken under a cover
//! ([`uruk_base::locks`]): embedders come here through handles of their own, units and
//! generators, without one, and get one for as long as they hold the lock. Waits have none.
//! A panic under a lock is a bug of ours; the lock is then taken as it is, for the embedder is
//! better served by the rest of the session than by a second panic.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(loom)]
use loom::sync as raw;
#[cfg(not(loom))]
use std::sync as raw;
use std::sync::PoisonError;

use uruk_base::locks::Covered;

#[cfg(loom)]
pub(crate) use modelled::Parker;
#[cfg(not(loom))]
pub(crate) use parker::Parker;

/// A lock that is not poisoned by panics.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(raw::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(raw::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let covered = Covered::ensure();
        MutexGuard {
            guard: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            _covered: covered,
        }
    }
}

/// The lock is open again before the cover goes.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    guard: raw::MutexGuard<'a, T>,
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

#[cfg(not(loom))]
mod parker {
    //! A binary token: `unpark` leaves it, `park` waits for it and takes it.
    //!
    //! | `token` | written by | when | ordering |
    //! |---|---|---|---|
    //! | `THERE` | `unpark` | always | release: pairs with the acquire exchange in `park` |
    //! | `AWAITED` | `park` | no token is there, before it sleeps | relaxed: says only that a wake is wanted |
    //! | `NONE` | `park` | it takes the token | |

    use std::sync::atomic::{AtomicU32, Ordering};

    use uruk_base::locks::uncovered;

    const NONE: u32 = 0;
    /// Somebody waits for it.
    const AWAITED: u32 = 1;
    const THERE: u32 = 2;

    /// See the module text. A wake that comes before the wait is kept. Nobody is woken if
    /// nobody waits: that would be a system call for nothing. Where several threads park, the
    /// one that takes the token leaves a new one.
    #[derive(Debug)]
    pub(crate) struct Parker {
        token: AtomicU32,
    }

    impl Parker {
        pub(crate) fn new() -> Self {
            Self {
                token: AtomicU32::new(NONE),
            }
        }

        fn take(&self) -> bool {
            let taken =
                self.token
                    .compare_exchange(THERE, NONE, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        }

        /// Waits until a token is there and takes it.
        pub(crate) fn park(&self) {
            if self.take() {
                return;
            }
            // Whoever leaves the token may fork first, or be a handler on this thread.
            uncovered(|| {
                while !self.take() {
                    let _ = self.token.compare_exchange(
                        NONE,
                        AWAITED,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    atomic_wait::wait(&self.token, AWAITED);
                }
            });
        }

        /// Leaves a token; two before a `park` are one.
        pub(crate) fn unpark(&self) {
            if self.token.swap(THERE, Ordering::Release) == AWAITED {
                atomic_wait::wake_all(&self.token);
            }
        }
    }
}

#[cfg(loom)]
mod modelled {
    //! The same for the model checker, which has no futex.

    use std::sync::PoisonError;

    use super::raw;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Token {
        None,
        /// Somebody waits for it.
        Awaited,
        There,
    }

    /// As the other.
    #[derive(Debug)]
    pub(crate) struct Parker {
        token: raw::Mutex<Token>,
        changed: raw::Condvar,
    }

    impl Parker {
        pub(crate) fn new() -> Self {
            Self {
                token: raw::Mutex::new(Token::None),
                changed: raw::Condvar::new(),
            }
        }

        /// Waits until a token is there and takes it.
        pub(crate) fn park(&self) {
            let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
            while *token != Token::There {
                *token = Token::Awaited;
                token = self
                    .changed
                    .wait(token)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            *token = Token::None;
        }

        /// Leaves a token; two before a `park` are one.
        pub(crate) fn unpark(&self) {
            let before = std::mem::replace(
                &mut *self.token.lock().unwrap_or_else(PoisonError::into_inner),
                Token::There,
            );
            if before == Token::Awaited {
                self.changed.notify_all();
            }
        }
    }
}
