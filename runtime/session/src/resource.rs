//! Resources of trackers, and the changes of trackers that an embedder hears of.

use crate::number::{DylibId, TrackerKey};

/// A resource of definitions that is released with them.
pub trait Resource: Send {
    /// The definitions were removed. Those attached last are released first.
    fn release(self: Box<Self>);
}

impl<F: FnOnce() + Send> Resource for F {
    fn release(self: Box<Self>) {
        self();
    }
}

/// A change of a tracker; passed to `SessionConfig::on_tracker_event`, for embedders that keep
/// their own tables by key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackerEvent {
    /// Its definitions were removed, and so was the key.
    Removed {
        /// The dylib.
        dylib: DylibId,
        /// The tracker.
        tracker: TrackerKey,
    },
    /// The definitions of `from` were moved to `to`; `from` is defunct.
    Transferred {
        /// The dylib.
        dylib: DylibId,
        /// The defunct one.
        from: TrackerKey,
        /// The tracker that has them now.
        to: TrackerKey,
    },
}
