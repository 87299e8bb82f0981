//! Sleeping on a word: the kernel's futex, or under loom a lock and a condition
//! variable with the same meaning, so that a lost wake-up is a deadlock that
//! loom reports.

use std::time::Duration;

use crate::sync::AtomicU32;

/// The sleepers of one word or of several.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub(crate) struct Futex;

#[cfg(not(loom))]
impl Futex {
    /// Sleeps while `word` holds `expected`; may return early.
    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        crate::sys::futex_wait(word, expected, timeout);
    }

    /// Like [`Futex::wait`], at one of `places`, one bit each.
    pub(crate) fn wait_at(
        &self,
        word: &AtomicU32,
        expected: u32,
        places: u32,
        timeout: Option<Duration>,
    ) {
        crate::sys::futex_wait_at(word, expected, places, timeout);
    }

    /// Wakes one sleeper of `word`.
    pub(crate) fn wake_one(&self, word: &AtomicU32) {
        crate::sys::futex_wake(word, 1);
    }

    /// Wakes one sleeper of `word` at one of `places`, if there is one.
    pub(crate) fn wake_at(&self, word: &AtomicU32, places: u32) -> bool {
        crate::sys::futex_wake_at(word, places)
    }

    /// Wakes all sleepers of `word`.
    pub(crate) fn wake_all(&self, word: &AtomicU32) {
        crate::sys::futex_wake(word, i32::MAX);
    }
}

/// The futex under loom: waiting compares under a lock that waking takes too.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct Futex {
    lock: loom::sync::Mutex<()>,
    woken: loom::sync::Condvar,
}

#[cfg(loom)]
impl Futex {
    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, _timeout: Option<Duration>) {
        let guard = self.lock.lock().unwrap();
        if word.load(crate::sync::Ordering::SeqCst) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    pub(crate) fn wait_at(
        &self,
        word: &AtomicU32,
        expected: u32,
        _places: u32,
        timeout: Option<Duration>,
    ) {
        self.wait(word, expected, timeout);
    }

    pub(crate) fn wake_one(&self, word: &AtomicU32) {
        self.wake_all(word);
    }

    /// No thread of a model sleeps at a place.
    pub(crate) fn wake_at(&self, _word: &AtomicU32, _places: u32) -> bool {
        false
    }

    pub(crate) fn wake_all(&self, _word: &AtomicU32) {
        let _guard = self.lock.lock().unwrap();
        self.woken.notify_all();
    }
}
