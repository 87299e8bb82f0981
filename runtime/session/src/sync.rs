//! The primitives of this package, in one place so that a model checker can
//! stand in for them (`--cfg loom`).
//!
//! Locks are std's: a futex word each and nothing process-wide, so a child of
//! `fork` finds no half-changed table of parked threads. A panic under a lock is
//! a bug of ours; the lock is then taken as it is, for the embedder is better
//! served by the rest of the session than by a second panic.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(loom)]
use loom::sync as raw;
#[cfg(not(loom))]
use std::sync as raw;
use std::sync::PoisonError;

pub(crate) use raw::MutexGuard;

/// A lock that is not poisoned by panics.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(raw::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(raw::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    None,
    /// Somebody waits for it.
    Awaited,
    There,
}

/// A binary token: `unpark` leaves it, `park` waits for it and takes it.
///
/// The token lives under the lock, so a wake that comes before the wait is kept.
/// Nobody is woken if nobody waits: that would be a system call for nothing.
/// Where several threads park, the one that takes the token leaves a new one.
#[derive(Debug)]
pub(crate) struct Parker {
    token: Mutex<Token>,
    changed: raw::Condvar,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            token: Mutex::new(Token::None),
            changed: raw::Condvar::new(),
        }
    }

    /// Waits until a token is there and takes it.
    pub(crate) fn park(&self) {
        let mut token = self.token.lock();
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
        let before = std::mem::replace(&mut *self.token.lock(), Token::There);
        if before == Token::Awaited {
            self.changed.notify_all();
        }
    }
}
