//! Versions under way, and their cancellation.

use crate::version::request::Request;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_codegen::Cancellation;
use uruk_session::Tracker;

/// The tokens of all versions under way, also of first calls. Those of threads that LLVM
/// took down stay: some words each.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<Vec<Going>>);

/// A version under way.
struct Going {
    function: FunctionId,
    version: VersionId,
    cancel: Cancellation,
    /// The request to a unit: the requesting thread waits for an embedder's code, which need not
    /// check a token.
    asked: Option<Tracker>,
}

/// A version is under way as long as this lives.
pub(crate) struct UnderWayGuard<'a> {
    list: &'a UnderWay,
    version: VersionId,
}

impl Drop for UnderWayGuard<'_> {
    fn drop(&mut self) {
        let gone = {
            let mut list = self.list.lock();
            let gone = list.iter().position(|one| one.version == self.version);
            gone.map(|at| list.swap_remove(at))
        };
        // A handle of the session is dropped without the lock.
        drop(gone);
    }
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, Vec<Going>> {
        self.0.lock()
    }

    /// Enters a version whose compile begins; `cancel` ends it early.
    pub(crate) fn enter(&self, request: &Request, cancel: &Cancellation) -> UnderWayGuard<'_> {
        let (function, version) = (request.function, request.version);
        self.lock().push(Going {
            function,
            version,
            cancel: cancel.clone(),
            asked: None,
        });
        UnderWayGuard {
            list: self,
            version,
        }
    }

    /// Notes that a unit was asked for `version`, which is under `tracker`.
    pub(crate) fn asks(&self, version: VersionId, tracker: &Tracker) {
        let mut list = self.lock();
        let mut going = list.iter_mut();
        if let Some(one) = going.find(|one| one.version == version) {
            one.asked = Some(tracker.clone());
        }
    }

    /// Ends the compiles of `versions`, and the waits for requests to units.
    pub(crate) fn cancel(&self, versions: &[VersionId]) {
        if versions.is_empty() {
            return;
        }
        let mut asked = Vec::new();
        for one in &*self.lock() {
            if versions.contains(&one.version) {
                one.cancel.cancel();
                asked.extend(one.asked.clone());
            }
        }
        for tracker in asked {
            // It fails only if it is gone already.
            let _ = tracker.remove();
        }
    }

    /// In the child of a fork, no thread compiles. Returns the requests to units, whose code runs
    /// without a pass: no thread will answer them.
    #[must_use]
    pub(crate) fn after_fork_child(&self) -> Vec<(FunctionId, VersionId)> {
        let lost = std::mem::take(&mut *self.lock());
        lost.into_iter()
            .map(|one| (one.function, one.version))
            .collect()
    }
}
