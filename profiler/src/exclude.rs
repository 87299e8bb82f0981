//! Threads that are not to be sampled: compile workers, the sampler itself.
//!
//! A fixed array of ids, so that a thread can add itself anywhere, a fork included, and a drain
//! looks ids up without a lock. All accesses are relaxed: an id guards no other data, and one
//! sample more or less at the moment of the change does no harm.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Most threads that can be excluded at a time.
pub const MAX_EXCLUDED: usize = 256;

/// A set of thread ids.
#[derive(Debug)]
pub struct Excluded {
    /// Thread ids; zero marks a free place.
    tids: [AtomicI32; MAX_EXCLUDED],
    /// Places from here on were never used.
    used: AtomicUsize,
}

impl Default for Excluded {
    fn default() -> Excluded {
        Excluded::new()
    }
}

impl Excluded {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Excluded {
        Excluded {
            tids: [const { AtomicI32::new(0) }; MAX_EXCLUDED],
            used: AtomicUsize::new(0),
        }
    }

    /// Adds a thread; false if the set holds [`MAX_EXCLUDED`] already. The samples of a thread that
    /// was not added are counted for the code it runs, which costs accuracy only.
    pub fn add(&self, tid: i32) -> bool {
        for (place, entry) in self.tids.iter().enumerate() {
            let free = entry.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed);
            if free.is_ok() {
                self.used.fetch_max(place + 1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Removes a thread. Call it before the thread ends, because the kernel reuses ids.
    pub fn remove(&self, tid: i32) {
        for entry in &self.tids {
            // An error means that this place holds another thread.
            let _ = entry.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether the thread is excluded.
    #[must_use]
    pub fn contains(&self, tid: i32) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let mut tids = self.tids[..used].iter();
        tids.any(|entry| entry.load(Ordering::Relaxed) == tid)
    }

    /// Empties the set: in the child of a fork the excluded threads do not exist.
    pub fn clear(&self) {
        for entry in &self.tids {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_added_up_to_its_limit() {
        let excluded = Excluded::new();
        assert!(!excluded.contains(1));
        for tid in 1..=MAX_EXCLUDED as i32 {
            assert!(excluded.add(tid));
        }
        assert!(!excluded.add(1000));
        assert!(excluded.contains(MAX_EXCLUDED as i32) && !excluded.contains(1000));
        excluded.remove(7);
        assert!(!excluded.contains(7));
        assert!(excluded.add(1000) && excluded.contains(1000));
        excluded.clear();
        assert!(!excluded.contains(1000));
    }
}
