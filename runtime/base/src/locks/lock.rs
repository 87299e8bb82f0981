//! `std`'s locks, counted.
//!
//! A guard is counted before its lock is taken and until after the lock is open again:
//! fields drop in order. A panic under a lock does not poison it: the session reports the panic, and
//! all callers would go on with the value as it is.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError};

use super::count::Held;
use super::order::{Leaf, Rank};

fn unpoisoned<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Like [`std::sync::Mutex`], counted, with a place in the order of locks.
#[derive(Debug)]
pub struct Mutex<T, R: Rank = Leaf>(sync::Mutex<T>, PhantomData<fn() -> R>);

impl<T, R: Rank> Mutex<T, R> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T, R> {
        Mutex(sync::Mutex::new(value), PhantomData)
    }

    /// Waits for the lock and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::wait::<T, R>();
        let guard = unpoisoned(self.0.lock());
        MutexGuard { guard, held }
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

/// Like [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: sync::MutexGuard<'a, T>,
    held: Held,
}

/// Like [`std::sync::RwLock`], counted, with a place in the order of locks. Readers wait for
/// writers that wait, so the order counts for readers, too.
#[derive(Debug)]
pub struct RwLock<T, R: Rank = Leaf>(sync::RwLock<T>, PhantomData<fn() -> R>);

impl<T, R: Rank> RwLock<T, R> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T, R> {
        RwLock(sync::RwLock::new(value), PhantomData)
    }

    /// Waits until no thread writes, and keeps writers out.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = Held::wait::<T, R>();
        let guard = unpoisoned(self.0.read());
        RwLockReadGuard { guard, _held: held }
    }

    /// Keeps writers out, unless one writes or waits: then there is none.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let held = Held::tried::<T, R>();
        let guard = match self.0.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(RwLockReadGuard { guard, _held: held })
    }

    /// Waits until no thread reads or writes, and keeps others out.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = Held::wait::<T, R>();
        let guard = unpoisoned(self.0.write());
        RwLockWriteGuard { guard, _held: held }
    }
}

/// Like [`std::sync::RwLockReadGuard`].
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    guard: sync::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Like [`std::sync::RwLockWriteGuard`].
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    guard: sync::RwLockWriteGuard<'a, T>,
    _held: Held,
}

macro_rules! defaults {
    ($($lock:ident),*) => {$(
        impl<T: Default, R: Rank> Default for $lock<T, R> {
            fn default() -> $lock<T, R> {
                $lock::new(T::default())
            }
        }
    )*};
}

defaults!(Mutex, RwLock);

macro_rules! derefs {
    ($($guard:ident),*) => {$(
        impl<T> Deref for $guard<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.guard
            }
        }
    )*};
}

derefs!(MutexGuard, RwLockReadGuard, RwLockWriteGuard);

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Like [`std::sync::Condvar`]. A waiting thread keeps its cover: a fork waits for the thread that
/// wakes it.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition without waiting threads.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Unlocks, waits, and locks again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, held } = guard;
        held.wait_again();
        let guard = unpoisoned(self.0.wait(guard));
        MutexGuard { guard, held }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
