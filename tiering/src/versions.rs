//! The versions of one function and the protocol by which one of them gets into its slot.
//!
//! All compilers of a function (the worker of a first call, a background worker, the embedder) take
//! the same steps: [`request`](FunctionVersions::request), [`start`](FunctionVersions::start),
//! [`ready`](FunctionVersions::ready), [`publish`](FunctionVersions::publish). Each step may return
//! that it is too late. The store into the slot is the caller's closure, run under the function's
//! lock as the last step, so that check and store are atomic.
//!
//! # When a ready version may be stored
//! It must be the version of the ticket, in flight, of the function's present *generation* (a
//! replaced body ends all its versions in flight), and not cancelled. The rest depends on its
//! purpose:
//!
//! | [`Purpose`] | stored if |
//! |---|---|
//! | `First` | no code is published |
//! | `Change` | its number is above that of every change published before, and the function is not staged |
//!
//! A function that is [staged](Stage) is about to be replaced. A `Change` that would be stored is
//! held until the replacement is committed (then it is dropped) or abandoned.
//!
//! So code for a first call that arrives late never covers better code, whichever of the
//! two was requested first, and of two changes the one requested later stays.
//!
//! # Which versions are kept
//! Versions in flight, at most [`IN_FLIGHT_LIMIT`]; the published one; and the *fallback*, the one
//! published before it, to which [`revert`](FunctionVersions::revert) goes back. All others are
//! only counted. A call that ends a version's use returns it, because the runtime holds its code by
//! a tracker.

use uruk_base::allocated::of_vec;

use crate::ids::{EntryAddress, Generation, Tier, VersionId};
use crate::sync::Mutex;
use crate::version::{Event, VersionState};

mod answers;
mod stage;
mod turns;

pub use answers::{
    Counts, Evicted, Late, Publication, RevertError, Reverted, Snapshot, VersionError, VersionView,
};
pub use stage::{CommitError, Committed, Kept, Next, Stage, StageError};

/// Most versions of one function in progress at a time: a first call, a tier-up, and one that
/// overtakes it on request.
pub const IN_FLIGHT_LIMIT: usize = 4;

/// The purpose of a version, which decides which versions it may replace in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A caller waits and there is no code: any code will do.
    First,
    /// It replaces the published version.
    Change,
}

/// The right to continue with a version. It may be out of date: every step checks it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The version.
    pub version: VersionId,
    /// The body it is a version of.
    pub generation: Generation,
}

/// The versions of one function; see the module.
#[derive(Debug)]
pub struct FunctionVersions(Mutex<Versions>);

#[derive(Debug)]
struct Versions {
    generation: Generation,
    /// A `Stage` of the function exists.
    staged: bool,
    published: Option<VersionView>,
    fallback: Option<VersionView>,
    in_flight: Vec<VersionView>,
    /// The newest change published so far.
    newest_change: Option<VersionId>,
    counts: Counts,
}

impl Default for FunctionVersions {
    fn default() -> FunctionVersions {
        FunctionVersions::new()
    }
}

impl FunctionVersions {
    /// The versions of a function without code.
    pub fn new() -> FunctionVersions {
        FunctionVersions(Mutex::new(Versions {
            generation: Generation::default(),
            staged: false,
            published: None,
            fallback: None,
            in_flight: Vec::new(),
            newest_change: None,
            counts: Counts::default(),
        }))
    }

    /// Bytes that the allocator took for the versions, without the value itself.
    pub fn bytes(&self) -> usize {
        of_vec(&self.0.lock().in_flight)
    }

    /// Requests a version of the present body.
    ///
    /// # Errors
    /// `TooMany` or `Reused`; nothing changed then.
    pub fn request(
        &self,
        version: VersionId,
        tier: Tier,
        purpose: Purpose,
    ) -> Result<Ticket, VersionError> {
        let mut versions = self.0.lock();
        if versions.knows(version) {
            return Err(VersionError::Reused(version));
        }
        if versions.in_flight.len() >= IN_FLIGHT_LIMIT {
            let limit = IN_FLIGHT_LIMIT;
            return Err(VersionError::TooMany { version, limit });
        }
        let generation = versions.generation;
        versions.in_flight.push(VersionView {
            id: version,
            tier,
            state: VersionState::Wanted,
            generation,
            entry: None,
            purpose,
        });
        Ok(Ticket {
            version,
            generation,
        })
    }

    /// Records that a worker begins.
    ///
    /// # Errors
    /// `Late` if the result could not be published any more (the version has ended then),
    /// `Illegal` if it was started before.
    pub fn start(&self, ticket: Ticket) -> Result<(), VersionError> {
        let mut versions = self.0.lock();
        let index = versions.find(ticket)?;
        if let Some(late) = versions.overtaken(index) {
            versions.give_up(index);
            return Err(late.into());
        }
        versions.step(index, Event::Start)
    }

    /// Records that the code is in memory; nothing refers to it.
    ///
    /// # Errors
    /// `Late` or `Illegal`; the code cannot be used then.
    pub fn ready(&self, ticket: Ticket, entry: EntryAddress) -> Result<(), VersionError> {
        let mut versions = self.0.lock();
        let index = versions.find(ticket)?;
        versions.step(index, Event::Link)?;
        versions.in_flight[index].entry = Some(entry);
        Ok(())
    }

    /// Stores the entry of a ready version into the slot, unless it is too late or held.
    ///
    /// `store` runs under the function's lock and returns false if the slot takes no code
    /// any more (the function was removed); it must not call back.
    ///
    /// # Errors
    /// `Illegal` if the version is not ready. A late version is no error but
    /// [`Publication::Dropped`], one that may not be stored yet [`Publication::Held`].
    pub fn publish(
        &self,
        ticket: Ticket,
        store: impl FnOnce(EntryAddress) -> bool,
    ) -> Result<Publication, VersionError> {
        let mut versions = self.0.lock();
        let index = match versions.find(ticket) {
            Ok(index) => index,
            Err(late) => return Ok(Publication::Dropped(late)),
        };
        let mut version = versions.in_flight[index];
        let late = versions.overtaken(index);
        if late.is_none() && versions.staged && version.purpose == Purpose::Change {
            versions.step(index, Event::Hold)?;
            return Ok(Publication::Held);
        }
        version.state = versions.check(index, Event::Publish)?;
        // Ready versions have an entry; `ready` is the only way there.
        let stored = late.is_none() && version.entry.is_some_and(store);
        if !stored {
            versions.give_up(index);
            return Ok(Publication::Dropped(late.unwrap_or(Late::Refused)));
        }
        versions.take_out(index);
        if version.purpose == Purpose::Change {
            versions.newest_change = Some(version.id);
        }
        versions.counts.published += 1;
        let (retired, released) = versions.supersede(Some(version));
        Ok(Publication::Published { retired, released })
    }

    /// Records that the version could not be compiled. False if it had ended already.
    pub fn fail(&self, version: VersionId) -> bool {
        self.end(version, Event::Fail)
    }

    /// Cancels the version. False if it had ended already, or is published.
    pub fn cancel(&self, version: VersionId) -> bool {
        self.end(version, Event::Drop)
    }

    /// Puts the version before `from` back into the slot. `store` as for
    /// [`publish`](FunctionVersions::publish). The retired code is needed only by threads that are
    /// in it.
    ///
    /// # Errors
    /// Nothing changed: `from` is not published, there is no fallback, or the slot refused.
    pub fn revert(
        &self,
        from: VersionId,
        store: impl FnOnce(EntryAddress) -> bool,
    ) -> Result<Reverted, RevertError> {
        let mut versions = self.0.lock();
        let published = versions.published.map(|version| version.id);
        if published != Some(from) {
            let asked = from;
            return Err(RevertError::NotPublished { asked, published });
        }
        if versions.staged {
            return Err(RevertError::Staged(from));
        }
        let Some(mut fallback) = versions.fallback else {
            return Err(RevertError::NoFallback(from));
        };
        let Ok(state) = fallback.state.step(Event::Restore) else {
            return Err(RevertError::NoFallback(from));
        };
        if !fallback.entry.is_some_and(store) {
            return Err(RevertError::Refused);
        }
        fallback.state = state;
        versions.supersede(Some(fallback));
        versions.fallback = None;
        Ok(Reverted {
            restored: fallback.id,
            retired: from,
        })
    }

    /// Takes the code out of the slot. `store` puts the trampoline there. Returns the version that
    /// was published; its code must stay for threads that are in it.
    pub fn withdraw(&self, store: impl FnOnce()) -> Option<VersionId> {
        let mut versions = self.0.lock();
        versions.published?;
        store();
        versions.supersede(None).0
    }

    /// Like [`withdraw`](FunctionVersions::withdraw), for a function without a compile or
    /// replacement in progress, and including the fallback: both versions are needed only by
    /// threads that are in them. `store` returns false if the slot keeps its code. The next call
    /// requests a `First` of the same body.
    pub fn evict(&self, store: impl FnOnce() -> bool) -> Option<Evicted> {
        let mut versions = self.0.lock();
        let published = versions.published?;
        if versions.staged || !versions.in_flight.is_empty() || !store() {
            return None;
        }
        let (_, released) = versions.supersede(None);
        versions.fallback = None;
        Some(Evicted {
            version: published.id,
            released,
        })
    }

    /// Releases the fallback, so that its code can be freed.
    pub fn release_fallback(&self) -> Option<VersionId> {
        self.0.lock().fallback.take().map(|version| version.id)
    }

    /// The version the slot holds.
    pub fn published(&self) -> Option<VersionView> {
        self.0.lock().published
    }

    /// All versions, for statistics and tests.
    pub fn snapshot(&self) -> Snapshot {
        let versions = self.0.lock();
        let newest = versions.in_flight.iter().max_by_key(|version| version.id);
        Snapshot {
            generation: versions.generation,
            staged: versions.staged,
            active: newest.or(versions.published.as_ref()).map(|v| v.id),
            published: versions.published,
            fallback: versions.fallback,
            in_flight: versions.in_flight.clone(),
            counts: versions.counts,
        }
    }

    fn end(&self, version: VersionId, event: Event) -> bool {
        let mut versions = self.0.lock();
        let found = versions.in_flight.iter().position(|v| v.id == version);
        let Some(index) = found else { return false };
        if versions.check(index, event).is_err() {
            return false;
        }
        versions.take_out(index);
        match event {
            Event::Fail => versions.counts.failed += 1,
            _ => versions.counts.dropped += 1,
        }
        true
    }

    /// Records that the code of `version` is also at `to`, and redirects from `from` to `to`: the
    /// slot, by `store` (as for [`publish`](FunctionVersions::publish)), or the record of the
    /// fallback. False, and no change, if the version is neither of them at `from`, the slot
    /// refused, or the function is [staged](Stage): then the copy is not needed.
    pub fn moved(
        &self,
        version: VersionId,
        from: EntryAddress,
        to: EntryAddress,
        store: impl FnOnce(EntryAddress) -> bool,
    ) -> bool {
        let mut versions = self.0.lock();
        if versions.staged {
            return false;
        }
        if let Some(held) = versions.fallback.as_mut()
            && held.id == version
            && held.entry == Some(from)
        {
            held.entry = Some(to);
            return true;
        }
        if let Some(held) = versions.published.as_mut()
            && held.id == version
            && held.entry == Some(from)
        {
            if !store(to) {
                return false;
            }
            held.entry = Some(to);
            return true;
        }
        false
    }
}

impl Versions {
    fn knows(&self, version: VersionId) -> bool {
        let known = self.published.iter().chain(&self.fallback);
        known.chain(&self.in_flight).any(|v| v.id == version)
    }

    fn find(&self, ticket: Ticket) -> Result<usize, Late> {
        if ticket.generation != self.generation {
            return Err(Late::Replaced);
        }
        let mut in_flight = self.in_flight.iter();
        let found = in_flight.position(|version| version.id == ticket.version);
        found.ok_or(Late::GivenUp)
    }

    /// The state after a step, without taking it.
    fn check(&self, index: usize, event: Event) -> Result<VersionState, VersionError> {
        let VersionView { id, state, .. } = self.in_flight[index];
        let illegal = |step| VersionError::Illegal { version: id, step };
        state.step(event).map_err(illegal)
    }

    fn step(&mut self, index: usize, event: Event) -> Result<(), VersionError> {
        self.in_flight[index].state = self.check(index, event)?;
        Ok(())
    }

    /// The module's rule about which version may be stored over another.
    fn overtaken(&self, index: usize) -> Option<Late> {
        let VersionView { id, purpose, .. } = self.in_flight[index];
        let better = match purpose {
            Purpose::First => self.published.map(|version| version.id),
            Purpose::Change => self.newest_change.filter(|&newest| newest > id),
        };
        better.map(Late::Overtaken)
    }

    fn give_up(&mut self, index: usize) {
        self.take_out(index);
        self.counts.dropped += 1;
    }

    /// Removes a version from those in flight. Most functions have none most of the time, and keep
    /// no memory for one.
    fn take_out(&mut self, index: usize) {
        self.in_flight.swap_remove(index);
        if self.in_flight.is_empty() {
            self.in_flight = Vec::new();
        }
    }

    /// Makes `next` the published version after its entry was stored: returns the retired version
    /// and the released one.
    fn supersede(&mut self, next: Option<VersionView>) -> (Option<VersionId>, Option<VersionId>) {
        let Some(mut old) = std::mem::replace(&mut self.published, next) else {
            return (None, self.fallback.take().map(|version| version.id));
        };
        debug_assert_eq!(old.state, VersionState::Published);
        old.state = old.state.step(Event::Retire).unwrap_or(old.state);
        self.counts.retired += 1;
        let released = self.fallback.replace(old);
        (Some(old.id), released.map(|version| version.id))
    }
}
