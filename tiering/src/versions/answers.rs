//! Results, errors and views of the publication protocol.

use thiserror::Error;

use crate::ids::{EntryAddress, Generation, Tier, VersionId};
use crate::version::{IllegalStep, VersionState};

use super::Purpose;

/// The reason why a step came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Late {
    /// The body was replaced since.
    #[error("the function was replaced meanwhile")]
    Replaced,
    /// It was cancelled, or ended before.
    #[error("the version was given up meanwhile")]
    GivenUp,
    /// The published version is better: newer, or any version at all for a first call.
    #[error("better code, {0}, is published already")]
    Overtaken(VersionId),
    /// The slot does not take code any more.
    #[error("the slot refused the code")]
    Refused,
}

/// A call that is wrong in any order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VersionError {
    /// Too many versions are in flight; retry when one has ended.
    #[error("{version} would be one more than the {limit} versions under way")]
    TooMany {
        /// The requested version.
        version: VersionId,
        /// The limit per function.
        limit: usize,
    },
    /// The number is already used.
    #[error("{0} exists already")]
    Reused(VersionId),
    /// The version is not in the state in which this step begins.
    #[error("{version}")]
    Illegal {
        /// The version.
        version: VersionId,
        /// The step.
        #[source]
        step: IllegalStep,
    },
    /// Too late; the code can be freed.
    #[error(transparent)]
    Late(#[from] Late),
}

/// The versions that an eviction took out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The version that was in the slot.
    pub version: VersionId,
    /// The fallback.
    pub released: Option<VersionId>,
}

/// The result of publishing a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The slot holds its code.
    Published {
        /// The version that was in the slot before; its code must stay, because it is the fallback
        /// now.
        retired: Option<VersionId>,
        /// The fallback before, which will never be in a slot again. Its code is needed only by
        /// threads that are in it.
        released: Option<VersionId>,
    },
    /// Nothing was stored yet, because the function is being replaced. Its ticket comes
    /// back from [`Stage::abandon`](super::Stage::abandon), or its number in
    /// [`Committed::dropped`](super::Committed::dropped).
    Held,
    /// Nothing was stored; its code is not needed any more.
    Dropped(Late),
}

/// The result of a return to the version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverted {
    /// The version that is in the slot again.
    pub restored: VersionId,
    /// The version taken out of the slot.
    pub retired: VersionId,
}

/// The reason why the version before could not be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RevertError {
    /// Another version is in the slot now.
    #[error("{asked} is not published, but {published:?} is")]
    NotPublished {
        /// The version to go back from.
        asked: VersionId,
        /// The version in the slot.
        published: Option<VersionId>,
    },
    /// This generation has no fallback.
    #[error("there is no version before {0}")]
    NoFallback(VersionId),
    /// The function is being replaced: the published version stays until that has ended.
    #[error("the function of {0} is being replaced")]
    Staged(VersionId),
    /// The slot does not take code any more.
    #[error("the slot refused the code")]
    Refused,
}

/// Numbers of versions by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Versions stored into the slot, each counted once.
    pub published: u32,
    /// Versions taken out of the slot.
    pub retired: u32,
    /// Versions that could not be compiled or linked.
    pub failed: u32,
    /// Versions too late or cancelled.
    pub dropped: u32,
}

/// A description of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionView {
    /// The number of the version.
    pub id: VersionId,
    /// The tier of the version.
    pub tier: Tier,
    /// The state of the version.
    pub state: VersionState,
    /// The body that it is compiled from.
    pub generation: Generation,
    /// The address of its code; `None` before it is ready.
    pub entry: Option<EntryAddress>,
    /// Its purpose.
    pub purpose: Purpose,
}

/// A function's versions at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The generation of the present body.
    pub generation: Generation,
    /// Whether the function is being replaced.
    pub staged: bool,
    /// The version that should run: the newest in flight, else the published one.
    pub active: Option<VersionId>,
    /// The version in the slot.
    pub published: Option<VersionView>,
    /// The version that `revert` would restore.
    pub fallback: Option<VersionView>,
    /// The versions in flight.
    pub in_flight: Vec<VersionView>,
    /// Counts of the other versions, by their end.
    pub counts: Counts,
}
