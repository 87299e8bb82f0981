//! What the publication protocol answers: results, errors and views.

use thiserror::Error;

use crate::ids::{EntryAddress, Generation, Tier, VersionId};
use crate::version::{IllegalStep, VersionState};

use super::Purpose;

/// Why a step came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Late {
    /// The body was replaced since.
    #[error("the function was replaced meanwhile")]
    Replaced,
    /// It was cancelled, or ended before.
    #[error("the version was given up meanwhile")]
    GivenUp,
    /// What is published is better: newer, or anything at all for a first call.
    #[error("better code, {0}, is published already")]
    Overtaken(VersionId),
    /// The slot does not take code any more.
    #[error("the slot refused the code")]
    Refused,
}

/// A call that no order of events makes right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VersionError {
    /// Too many versions are under way; ask again when one has ended.
    #[error("{version} would be one more than the {limit} versions under way")]
    TooMany {
        /// Who was asked for.
        version: VersionId,
        /// The most of one function.
        limit: usize,
    },
    /// The number is already used.
    #[error("{0} exists already")]
    Reused(VersionId),
    /// The version is not where this step begins.
    #[error("{version}")]
    Illegal {
        /// Which.
        version: VersionId,
        /// The step.
        #[source]
        step: IllegalStep,
    },
    /// Too late; what was made can be thrown away.
    #[error(transparent)]
    Late(#[from] Late),
}

/// What an eviction took out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Was in the slot.
    pub version: VersionId,
    /// Was kept to go back to.
    pub released: Option<VersionId>,
}

/// What became of a version that was to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The slot holds it.
    Published {
        /// Was in the slot before; its code must stay, calls may go back to it.
        retired: Option<VersionId>,
        /// Will never be in a slot again: the one kept to go back to until now. Its code is
        /// of use only to those who are in it.
        released: Option<VersionId>,
    },
    /// Nothing was stored yet, because the function is being replaced. Its ticket comes
    /// back from [`Stage::abandon`](super::Stage::abandon), or its number in
    /// [`Committed::dropped`](super::Committed::dropped).
    Held,
    /// Nothing was stored; its code is of no more use.
    Dropped(Late),
}

/// What a return to the version before did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverted {
    /// In the slot again.
    pub restored: VersionId,
    /// Taken out of the slot.
    pub retired: VersionId,
}

/// Why the version before could not be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RevertError {
    /// Another version is in the slot by now.
    #[error("{asked} is not published, but {published:?} is")]
    NotPublished {
        /// From which to go back.
        asked: VersionId,
        /// What the slot holds.
        published: Option<VersionId>,
    },
    /// There is none of this generation.
    #[error("there is no version before {0}")]
    NoFallback(VersionId),
    /// The function is being replaced: what is published stays until that has ended.
    #[error("the function of {0} is being replaced")]
    Staged(VersionId),
    /// The slot does not take code any more.
    #[error("the slot refused the code")]
    Refused,
}

/// How many versions ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stored into the slot, for the first time each.
    pub published: u32,
    /// Taken out of the slot.
    pub retired: u32,
    /// Could not be made.
    pub failed: u32,
    /// Too late or cancelled.
    pub dropped: u32,
}

/// One version, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionView {
    /// Its number.
    pub id: VersionId,
    /// How it is compiled.
    pub tier: Tier,
    /// Where it is in its life.
    pub state: VersionState,
    /// The body it is of.
    pub generation: Generation,
    /// Its code; `None` before it is ready.
    pub entry: Option<EntryAddress>,
    /// Why it was asked for.
    pub purpose: Purpose,
}

/// A function's versions at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The present body's.
    pub generation: Generation,
    /// Whether it is being replaced.
    pub staged: bool,
    /// What is wanted: the newest under way, else what is published.
    pub active: Option<VersionId>,
    /// What the slot holds.
    pub published: Option<VersionView>,
    /// To which `revert` would go back.
    pub fallback: Option<VersionView>,
    /// Under way.
    pub in_flight: Vec<VersionView>,
    /// How the others ended.
    pub counts: Counts,
}
