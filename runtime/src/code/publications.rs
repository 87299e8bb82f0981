//! Excludes publications of versions during a commit of a replacement. A version that a commit made
//! stale is not published.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Publications::stale` (read) | a version is checked and published | a function's own, its slot |
//! | `Publications::stale` (write) | a set is committed: bodies, plans, versions | the function table, plans, `Versions`, functions' own |
//!
//! # Why
//! One module offers a function's body. After a commit the import of the old module is `replaced`:
//! neither its body nor its attributes are used. A version is stale if its compile began before the
//! commit and it depends on a replaced function. That is checked right before the version is stored
//! into the slot, under the read lock, so that no commit comes in between.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk_base::FunctionId;
use uruk_base::locks::{RwLock, RwLockReadGuard, RwLockWriteGuard, ranks};

/// The latest commit of each replaced function.
#[derive(Default)]
pub(crate) struct LatestCommits {
    /// Number of the latest commit that replaced a function, by function index.
    replaced: HashMap<u32, u64>,
}

/// The read lock of a publication: no replacement commits while it lives.
pub(crate) struct Publishing<'a>(RwLockReadGuard<'a, LatestCommits>);

impl Publishing<'_> {
    /// True unless one of `depends` was replaced after commit number `epoch`.
    pub(crate) fn is_fresh(&self, epoch: u64, depends: &[FunctionId]) -> bool {
        self.0.is_fresh(epoch, depends)
    }
}

impl LatestCommits {
    fn is_fresh(&self, epoch: u64, depends: &[FunctionId]) -> bool {
        let after = |id: &FunctionId| self.replaced.get(&id.index()).is_some_and(|&at| at > epoch);
        self.replaced.is_empty() || !depends.iter().any(after)
    }
}

/// The write lock of a commit: no version is published, and no other set is committed, while it
/// lives.
pub(crate) struct Committing<'a> {
    stale: RwLockWriteGuard<'a, LatestCommits>,
    epoch: &'a AtomicU64,
}

impl Committing<'_> {
    /// Makes compiles stale that began before and depend on `ids`; returns the number of this
    /// commit. To be called after the new bodies and plans are in place: a reader of the new number
    /// reads these.
    pub(crate) fn outdate(&mut self, ids: impl Iterator<Item = FunctionId>) -> u64 {
        let number = self.epoch.load(Ordering::Relaxed) + 1;
        self.stale
            .replaced
            .extend(ids.map(|id| (id.index(), number)));
        // Partner: the acquire in `Publications::epoch`.
        self.epoch.store(number, Ordering::Release);
        number
    }
}

/// The lock between publications and commits, and the number of the latest commit.
#[derive(Default)]
pub(crate) struct Publications {
    /// Number of the latest commit. Changes under `stale` only.
    epoch: AtomicU64,
    stale: RwLock<LatestCommits, ranks::PublicationsStale>,
}

impl Publications {
    /// Number of the latest commit whose bodies and plans a compile that begins now sees.
    pub(crate) fn epoch(&self) -> u64 {
        // Partner: the release in `Committing::outdate`.
        self.epoch.load(Ordering::Acquire)
    }

    /// Excludes commits until the result is dropped.
    pub(crate) fn publish(&self) -> Publishing<'_> {
        Publishing(self.stale.read())
    }

    /// Like [`Publications::publish`], for callers that hold locks which a commit takes: `None` if
    /// a set is being committed.
    pub(crate) fn try_publish(&self) -> Option<Publishing<'_>> {
        self.stale.try_read().map(Publishing)
    }

    /// Excludes publications and other commits until the result is dropped.
    pub(crate) fn commit(&self) -> Committing<'_> {
        Committing {
            stale: self.stale.write(),
            epoch: &self.epoch,
        }
    }
}
