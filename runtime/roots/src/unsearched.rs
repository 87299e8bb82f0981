//! Memory of the runtime that a search of all memory leaves out, as no code is suspended there.
//!
//! | memory | why | holds addresses of code |
//! |---|---|---|
//! | alternate stacks that the runtime gives to threads | only handlers run there, and a thread in one is walked from there | contexts that were interrupted, until the next handler |
//! | records of guarded calls | no stack | frames of the latest trap |
//!
//! Memory that finds no place in the table is read like any other.
//!
//! | field | written by | ordering |
//! |---|---|---|
//! | `start` 0 to the address | the memory's owner (compare-exchange) | acq-rel; pairs with the acquire in `all` |
//! | `start` address to 0 | the owner, before the memory goes | release |
//! | `size` | the same, once `start` is set | release; 0 while it is added |

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of ranges.
const PLACES: usize = 4096;

struct ThreadPlace {
    start: AtomicU64,
    size: AtomicU64,
}

static TABLE: [ThreadPlace; PLACES] = [const {
    ThreadPlace {
        start: AtomicU64::new(0),
        size: AtomicU64::new(0),
    }
}; PLACES];

/// Declares that no code is suspended in `range`, except handlers of running threads, until
/// [`search_again`].
pub fn leave_unsearched(range: Range<u64>) {
    let place = TABLE.iter().find(|place| {
        let held =
            place
                .start
                .compare_exchange(0, range.start, Ordering::AcqRel, Ordering::Relaxed);
        held.is_ok()
    });
    if let Some(place) = place {
        let size = range.end.saturating_sub(range.start);
        place.size.store(size, Ordering::Release);
    }
}

/// Removes the range that begins at `start`: its memory is about to be reused.
pub fn search_again(start: u64) {
    let mut places = TABLE.iter();
    if let Some(place) = places.find(|place| place.start.load(Ordering::Relaxed) == start) {
        place.size.store(0, Ordering::Release);
        place.start.store(0, Ordering::Release);
    }
}

/// All ranges that are not searched.
pub(crate) fn all() -> Vec<Range<u64>> {
    let places = TABLE.iter().filter_map(|place| {
        let start = place.start.load(Ordering::Acquire);
        let size = place.size.load(Ordering::Acquire);
        // Otherwise it was removed and reused meanwhile.
        let same = place.start.load(Ordering::Acquire) == start;
        (start != 0 && size != 0 && same).then(|| start..start.saturating_add(size))
    });
    places.collect()
}
