//! Threads that never run or return into code of the region: workers of the runtime.
//!
//! They may block all signals; asking them would only cost time. A child of `fork` forgets all of them:
//! its threads have other ids.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | place 0 to id | the thread itself | release; pairs with the acquire of `all` |
//! | place id to 0 | the thread itself, or `clear` | release; compare-exchange with the id |

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// Leaves the thread on which it was made out of scans while this lives.
#[derive(Debug)]
pub struct Exemption {
    table: Arc<Exempt>,
    place: Option<usize>,
    tid: i32,
    /// It ends on its own thread: an id may be reused after the thread's end.
    _on_its_thread: PhantomData<*const ()>,
}

/// The exempt threads.
#[derive(Debug)]
pub(crate) struct Exempt {
    places: Box<[AtomicI32]>,
}

impl Exempt {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            places: (0..capacity).map(|_| AtomicI32::new(0)).collect(),
        }
    }

    /// Enters the calling thread. Without a free place it is scanned like any other.
    pub(crate) fn enter(self: &Arc<Self>) -> Exemption {
        let tid = sys::gettid();
        let place = self.places.iter().position(|place| {
            // Release: pairs with the acquire in `all`.
            place
                .compare_exchange(0, tid, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        });
        Exemption {
            table: self.clone(),
            place,
            tid,
            _on_its_thread: PhantomData,
        }
    }

    pub(crate) fn all(&self) -> Vec<i32> {
        // Acquire: pairs with the release in `enter`.
        let tids = self.places.iter().map(|tid| tid.load(Ordering::Acquire));
        tids.filter(|&tid| tid != 0).collect()
    }

    pub(crate) fn clear(&self) {
        for place in &self.places {
            place.store(0, Ordering::Release);
        }
    }
}

impl Drop for Exemption {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // In a child of `fork` the place may be another thread's by now.
            let _ = self.table.places[place].compare_exchange(
                self.tid,
                0,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }
}
