//! Why unused code cannot be freed: finally, or as long as a system call is refused. The reason is
//! in [`MemoryStats::stays`](crate::MemoryStats::stays), and is reported by an event once.
//!
//! Reasons are noted on any thread, also on one of the program in the middle of a system call;
//! the event is told on the thread that reclaims.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;
use uruk_base::locks::Mutex;

use crate::events::Event;
use crate::reclaim::Reclaim;

/// Reasons, of one session.
#[derive(Default)]
pub(super) struct Stays {
    /// There is a final reason. Relaxed: set before the cycle that could free, or seen by the next
    /// one; a cycle that is under way drops its own answer.
    for_good: AtomicBool,
    known: Mutex<StayReasons>,
}

#[derive(Default)]
struct StayReasons {
    /// The first final reason.
    lasting: Option<String>,
    /// The reason why the last cycle failed.
    passing: Option<String>,
    /// Reasons that were reported; few, as each is a fixed sentence with the error of a call.
    told: Vec<String>,
}

impl StayReasons {
    fn cause(&self) -> Option<&String> {
        self.lasting.as_ref().or(self.passing.as_ref())
    }
}

impl Stays {
    /// Ends reclaim: nothing is freed any more.
    pub(super) fn for_good(&self, cause: impl Into<String>) {
        if !self.for_good.swap(true, Ordering::Relaxed) {
            self.known().lasting = Some(cause.into());
        }
    }

    /// Whether nothing is freed any more.
    pub(super) fn is_for_good(&self) -> bool {
        self.for_good.load(Ordering::Relaxed)
    }

    /// Notes the end of a cycle: why it proved nothing, or that it could free.
    pub(super) fn cycle(&self, failed: Option<String>) {
        self.known().passing = failed;
    }

    /// Why code stays now, if that is so.
    pub(super) fn cause(&self) -> Option<String> {
        self.known().cause().cloned()
    }

    /// The reason, if it was not reported yet.
    fn untold(&self) -> Option<String> {
        let mut known = self.known();
        let cause = known.cause()?.clone();
        if known.told.contains(&cause) {
            return None;
        }
        known.told.push(cause.clone());
        Some(cause)
    }

    fn known(&self) -> uruk_base::locks::MutexGuard<'_, StayReasons> {
        self.known.lock()
    }
}

impl Reclaim {
    /// Reports why code stays, each reason once.
    pub(super) fn tell_of_staying(&self) {
        let Some(cause) = self.stays.untold() else {
            return;
        };
        warn!(%cause, "no code is freed");
        let at = self.events.now();
        self.events.tell(|| Event::CodeStays { cause, at });
    }

    /// Ends the freeing of code.
    pub(crate) fn keep_code(&self, cause: &str) {
        self.stays.for_good(cause);
    }

    /// Why no code is freed, if that is so.
    pub(crate) fn why_code_stays(&self) -> Option<String> {
        self.stays.cause()
    }
}

#[cfg(test)]
mod tests {
    use super::Stays;

    #[test]
    fn each_reason_is_told_once_and_the_lasting_one_wins() {
        let _pass = crate::fork::gate::enter();
        let stays = Stays::default();
        assert_eq!(stays.untold(), None);
        stays.cycle(Some("busy".into()));
        assert_eq!(stays.untold().as_deref(), Some("busy"));
        assert_eq!(stays.untold(), None);
        stays.cycle(None);
        assert_eq!(stays.cause(), None);
        stays.cycle(Some("busy".into()));
        assert_eq!(stays.cause().as_deref(), Some("busy"));
        assert_eq!(stays.untold(), None);
        stays.for_good("lost");
        stays.for_good("lost again");
        assert!(stays.is_for_good());
        stays.cycle(None);
        assert_eq!(stays.untold().as_deref(), Some("lost"));
        assert_eq!(stays.cause().as_deref(), Some("lost"));
    }
}
