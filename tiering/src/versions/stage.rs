//! Replaces a function in two steps: [`stage`](FunctionVersions::stage), then
//! [`commit`](Stage::commit) or [`abandon`](Stage::abandon).
//!
//! A set of functions is replaced by staging all of them, closing a gate before their slots,
//! committing all of them and opening the gate. Up to the commit the present generation is valid,
//! after it the new one:
//!
//! | while staged | answer | why |
//! |---|---|---|
//! | `request`, `start`, `ready` | as usual | an abandoned replacement costs no compile |
//! | `publish` of a `First` | stored | a thread that must leave old code may call it |
//! | `publish` of a `Change` | [`Publication::Held`](super::Publication::Held) | the code to search for on stacks is that published at the time of staging |
//! | `revert` | `RevertError::Staged` | as above |
//! | `withdraw` | as usual | a removal is final |
//! | `stage` | [`StageError::Staged`] | sets exclude each other |
//!
//! A version that gets ready meanwhile is held and not dropped: the caller that abandons the set
//! may publish it ([`Stage::abandon`] returns it). The runtime cancels it, because its compiler was
//! told that it is late and the policy requests another.
//!
//! # The order that makes a set whole
//! `store` of a commit runs under the function's lock, as every store does. Before a closed gate it
//! changes the kept code of the gate and nothing that a call sees. So all members are committed,
//! each by itself, and one step makes them visible: the opening. Versions published between the two
//! (of the new generation, or late) are stored the same way, and nothing has to be stored when the
//! gate opens.
//!
//! `store` is also the place to switch the body that compiles read: a compile that reads it after a
//! `request` of the new generation reads the new body.

use std::mem;
use std::sync::Arc;

use thiserror::Error;

use crate::ids::{EntryAddress, Generation, Tier, VersionId};
use crate::version::{Event, VersionState};

use super::{FunctionVersions, Purpose, Ticket, VersionView, Versions};

/// The code of a function after a commit.
#[derive(Debug)]
pub enum Next {
    /// Code of the new body, compiled and linked beforehand.
    Code {
        /// The version's number, unused so far.
        version: VersionId,
        /// The tier of the code.
        tier: Tier,
        /// The address of its code.
        entry: EntryAddress,
    },
    /// The version that an earlier commit of this function took out of the slot: a rollback. It
    /// keeps its number, because its code is the same.
    Restored(Kept),
    /// No code: the next call requests code of the new body.
    Unbound,
}

/// The version that a commit took out of the slot. Holding it proves that it is one of the
/// function's, retired, and that only the holder can restore it. Its code must stay as long as the
/// value does.
#[derive(Debug)]
#[must_use = "what is not kept can be freed: see `version`"]
pub struct Kept {
    versions: Arc<FunctionVersions>,
    view: VersionView,
}

impl Kept {
    /// The number of the version.
    pub fn version(&self) -> VersionId {
        self.view.id
    }

    /// The description of the version.
    pub fn view(&self) -> VersionView {
        self.view
    }

    /// Records that its code was moved.
    pub fn moved(&mut self, entry: EntryAddress) {
        self.view.entry = Some(entry);
    }
}

/// The right to replace a function, and the duty to end the replacement: dropping it abandons, and
/// gives up the held versions.
#[derive(Debug)]
#[must_use = "a function that stays staged gets no better code"]
pub struct Stage {
    versions: Arc<FunctionVersions>,
    ended: bool,
}

/// The result of a commit.
#[derive(Debug)]
pub struct Committed {
    /// The new generation.
    pub generation: Generation,
    /// The version that was in the slot until now, for a rollback.
    pub kept: Option<Kept>,
    /// Versions in flight: their results will be late, the work can be cancelled.
    pub dropped: Vec<VersionId>,
    /// The fallback within the old generation; its code is needed only by threads that are in it.
    pub released: Option<VersionId>,
}

/// The reason why a function cannot be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StageError {
    /// Another replacement of it is in progress.
    #[error("the function is being replaced already, over generation {}", .0.0)]
    Staged(Generation),
}

/// The reason why a commit did nothing. The stage has ended, as if it had been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The number is already used.
    #[error("{0} exists already")]
    Reused(VersionId),
    /// The version was taken out of another function.
    #[error("{0} is a version of another function")]
    Foreign(VersionId),
    /// The slot takes no code any more: the function was removed.
    #[error("the slot refused the change")]
    Refused,
}

impl FunctionVersions {
    /// Begins a replacement; see [`Stage`].
    ///
    /// # Errors
    /// [`StageError::Staged`]: only one at a time.
    pub fn stage(self: &Arc<Self>) -> Result<Stage, StageError> {
        let mut versions = self.0.lock();
        if versions.staged {
            return Err(StageError::Staged(versions.generation));
        }
        versions.staged = true;
        Ok(Stage {
            versions: Arc::clone(self),
            ended: false,
        })
    }

    /// Stages and commits in one step, as a removal does. A concurrent replacement finds the
    /// function either unchanged or ended, and never staged.
    ///
    /// # Errors
    /// [`StageError::Staged`]; within, those of [`Stage::commit`].
    pub fn commit(
        self: &Arc<Self>,
        next: Next,
        store: impl FnOnce(Option<EntryAddress>) -> bool,
    ) -> Result<Result<Committed, CommitError>, StageError> {
        let mut versions = self.0.lock();
        if versions.staged {
            return Err(StageError::Staged(versions.generation));
        }
        let next = next.of(self, &versions);
        let done = next.and_then(|next| versions.commit(next, store));
        drop(versions);
        Ok(done.map(|done| done.of(self)))
    }
}

impl Stage {
    /// The version that a commit would take out of the slot.
    pub fn published(&self) -> Option<VersionView> {
        self.versions.published()
    }

    /// Ends the present generation and begins the next with `next`. `store` puts the entry (or the
    /// trampoline, for `None`) into the slot or behind its gate. It runs under the function's lock,
    /// must not call back, and returns false if the function was removed.
    ///
    /// # Errors
    /// Nothing was stored; the present generation continues.
    pub fn commit(
        mut self,
        next: Next,
        store: impl FnOnce(Option<EntryAddress>) -> bool,
    ) -> Result<Committed, CommitError> {
        let mut versions = self.versions.0.lock();
        let outcome = next
            .of(&self.versions, &versions)
            .and_then(|next| versions.commit(next, store));
        drop(versions);
        // After an error, dropping the stage abandons it.
        let done = outcome?;
        self.ended = true;
        Ok(done.of(&self.versions))
    }

    /// Gives up the replacement: the present generation continues. Returns the versions that were
    /// held meanwhile, oldest first; each must be passed to [`publish`](FunctionVersions::publish)
    /// once more, or cancelled.
    #[must_use = "they stay in flight until they are published or cancelled"]
    pub fn abandon(mut self) -> Vec<Ticket> {
        self.ended = true;
        self.versions.0.lock().abandon()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut versions = self.versions.0.lock();
        for ticket in versions.abandon() {
            if let Ok(index) = versions.find(ticket) {
                versions.give_up(index);
            }
        }
    }
}

impl Next {
    /// The description of the next version, after a check that it is allowed.
    fn of(
        self,
        function: &Arc<FunctionVersions>,
        versions: &Versions,
    ) -> Result<Option<VersionView>, CommitError> {
        let generation = Generation(versions.generation.0 + 1);
        match self {
            Next::Unbound => Ok(None),
            Next::Code { version, .. } if versions.knows(version) => {
                Err(CommitError::Reused(version))
            }
            Next::Code {
                version,
                tier,
                entry,
            } => Ok(Some(VersionView {
                id: version,
                tier,
                state: VersionState::Ready,
                generation,
                entry: Some(entry),
                purpose: Purpose::Change,
            })),
            Next::Restored(kept) if !Arc::ptr_eq(&kept.versions, function) => {
                Err(CommitError::Foreign(kept.view.id))
            }
            Next::Restored(kept) => Ok(Some(VersionView {
                generation,
                ..kept.view
            })),
        }
    }
}

/// The changes of a commit.
struct Done {
    generation: Generation,
    old: Option<VersionView>,
    dropped: Vec<VersionId>,
    released: Option<VersionId>,
}

impl Done {
    /// The result for the caller.
    fn of(self, versions: &Arc<FunctionVersions>) -> Committed {
        Committed {
            generation: self.generation,
            kept: self.old.map(|view| Kept {
                versions: Arc::clone(versions),
                view,
            }),
            dropped: self.dropped,
            released: self.released,
        }
    }
}

impl Versions {
    fn commit(
        &mut self,
        mut next: Option<VersionView>,
        store: impl FnOnce(Option<EntryAddress>) -> bool,
    ) -> Result<Done, CommitError> {
        let restored = next.is_some_and(|version| version.state == VersionState::Retired);
        if let Some(version) = &mut next {
            let event = if restored {
                Event::Restore
            } else {
                Event::Publish
            };
            // Ready and Retired are the only states that `Next::of` gives.
            let state = version.state.step(event);
            version.state = state.map_err(|_| CommitError::Reused(version.id))?;
        }
        if !store(next.and_then(|version| version.entry)) {
            return Err(CommitError::Refused);
        }
        self.generation.0 += 1;
        self.staged = false;
        self.counts.published += u32::from(next.is_some() && !restored);
        // Changes decided on before this were for another body, even if their request comes later.
        self.newest_change = self.newest_change.max(next.map(|version| version.id));
        let dropped: Vec<VersionId> = self.in_flight.drain(..).map(|v| v.id).collect();
        self.counts.dropped += dropped.len() as u32;
        let mut old = mem::replace(&mut self.published, next);
        if let Some(old) = &mut old {
            self.counts.retired += 1;
            old.state = old.state.step(Event::Retire).unwrap_or(old.state);
        }
        Ok(Done {
            generation: self.generation,
            old,
            dropped,
            released: self.fallback.take().map(|version| version.id),
        })
    }

    /// Ends a stage; returns the versions that were held, which are ready again.
    fn abandon(&mut self) -> Vec<Ticket> {
        self.staged = false;
        let generation = self.generation;
        let mut held = Vec::new();
        for version in &mut self.in_flight {
            if let Ok(state) = version.state.step(Event::Resume) {
                version.state = state;
                let version = version.id;
                held.push(Ticket {
                    version,
                    generation,
                });
            }
        }
        held.sort_by_key(|ticket| ticket.version);
        held
    }
}
