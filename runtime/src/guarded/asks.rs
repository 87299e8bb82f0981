//! The guarded calls of a thread that must end: a set of serials, of any size.
//!
//! | thread | action |
//! |---|---|
//! | a thread that interrupts, under the lock of the timer | writes a serial into a free place, or adds a place |
//! | the thread itself, and its handlers | reads; clears serials of calls that ended |
//!
//! A place with a serial is changed by the thread only, so no write is lost.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The set of calls that must end.
#[derive(Debug, Default)]
pub(crate) struct EndRequests {
    first: AtomicPtr<Ask>,
    /// Counts requests, so that the thread that sets the timer sees those that came meanwhile.
    count: AtomicU64,
}

#[derive(Debug)]
struct Ask {
    /// 0: none.
    serial: AtomicU64,
    next: *mut Ask,
}

impl EndRequests {
    fn places(&self) -> impl Iterator<Item = &AtomicU64> {
        // SAFETY: places stay as long as the list.
        let first = unsafe { self.first.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above.
        let next = |ask: &&Ask| unsafe { ask.next.as_ref() };
        std::iter::successors(first, next).map(|ask| &ask.serial)
    }

    /// Requests the end of a call. One thread at a time.
    pub(crate) fn add(&self, serial: u64) {
        if !self.has(serial) {
            let mut free = self.places();
            match free.find(|place| place.load(Ordering::Relaxed) == 0) {
                Some(place) => place.store(serial, Ordering::Release),
                None => {
                    let ask = Box::new(Ask {
                        serial: AtomicU64::new(serial),
                        next: self.first.load(Ordering::Relaxed),
                    });
                    self.first.store(Box::into_raw(ask), Ordering::Release);
                }
            }
        }
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether a call must end.
    pub(crate) fn has(&self, serial: u64) -> bool {
        let mut places = self.places();
        places.any(|place| place.load(Ordering::Acquire) == serial)
    }

    /// Whether any call must end.
    pub(crate) fn any(&self) -> bool {
        let mut places = self.places();
        places.any(|place| place.load(Ordering::Acquire) != 0)
    }

    /// Removes the serials that `wanted` rejects; for the thread itself.
    pub(crate) fn retain(&self, wanted: impl Fn(u64) -> bool) {
        for place in self.places() {
            let serial = place.load(Ordering::Acquire);
            if serial != 0 && !wanted(serial) {
                place.store(0, Ordering::Release);
            }
        }
    }
}

impl Drop for EndRequests {
    fn drop(&mut self) {
        let mut ask = self.first.swap(ptr::null_mut(), Ordering::Acquire);
        while !ask.is_null() {
            // SAFETY: made by `add`; the list is being dropped.
            let owned = unsafe { Box::from_raw(ask) };
            ask = owned.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EndRequests;

    #[test]
    fn as_many_as_are_asked_for_and_places_are_used_again() {
        let asks = EndRequests::default();
        for round in 0..3 {
            let serials = round * 10 + 1..round * 10 + 6;
            serials.clone().for_each(|serial| asks.add(serial));
            asks.add(round * 10 + 1);
            assert!(serials.clone().all(|serial| asks.has(serial)));
            assert_eq!(asks.places().count(), 5);
            asks.retain(|serial| serial == round * 10 + 2);
            assert!(asks.any() && asks.has(round * 10 + 2) && !asks.has(round * 10 + 1));
            asks.retain(|_| false);
            assert!(!asks.any());
        }
        assert_eq!(asks.count(), 18);
    }
}
