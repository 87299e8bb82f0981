//! A tracker of the session package, which may be dropped on any thread.

use crate::fork::gate;

/// The session's tracker handle, usable anywhere: dropping the last one takes the session's lock.
#[derive(Clone)]
pub(crate) struct Tracked {
    tracker: uruk_session::Tracker,
    end: gate::End,
}

impl From<uruk_session::Tracker> for Tracked {
    fn from(tracker: uruk_session::Tracker) -> Tracked {
        Tracked {
            tracker,
            end: gate::End::default(),
        }
    }
}

impl std::ops::Deref for Tracked {
    type Target = uruk_session::Tracker;

    fn deref(&self) -> &uruk_session::Tracker {
        &self.tracker
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.end.begin();
    }
}
