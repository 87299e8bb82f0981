//! Alternates two versions in the slot, while they are compared.
//!
//! The version that is not in the slot stays the *fallback*: its code is kept and can move. It is
//! given up like any other fallback when a version is published or the function is replaced or
//! evicted; then the turns are over. The version published last stays.

use crate::ids::VersionId;
use crate::version::Event;

use super::{EntryAddress, FunctionVersions, RevertError};

impl FunctionVersions {
    /// Puts the fallback into the slot, in place of `from`, which becomes the fallback. `store` as
    /// for [`publish`](FunctionVersions::publish). Returns the version now in the slot.
    ///
    /// # Errors
    /// As for [`revert`](FunctionVersions::revert); nothing changed.
    pub fn alternate(
        &self,
        from: VersionId,
        store: impl FnOnce(EntryAddress) -> bool,
    ) -> Result<VersionId, RevertError> {
        let mut versions = self.0.lock();
        let published = versions.published;
        let Some(mut old) = published.filter(|version| version.id == from) else {
            let (asked, published) = (from, published.map(|version| version.id));
            return Err(RevertError::NotPublished { asked, published });
        };
        if versions.staged {
            return Err(RevertError::Staged(from));
        }
        let Some(mut next) = versions.fallback else {
            return Err(RevertError::NoFallback(from));
        };
        let (Ok(restored), Ok(retired)) = (
            next.state.step(Event::Restore),
            old.state.step(Event::Retire),
        ) else {
            return Err(RevertError::NoFallback(from));
        };
        if !next.entry.is_some_and(store) {
            return Err(RevertError::Refused);
        }
        (next.state, old.state) = (restored, retired);
        versions.published = Some(next);
        versions.fallback = Some(old);
        Ok(next.id)
    }

    /// Gives up `version`, if it is the fallback: its code can be freed. The turns are over.
    pub fn release_loser(&self, version: VersionId) -> bool {
        let mut versions = self.0.lock();
        let is_fallback = versions.fallback.is_some_and(|held| held.id == version);
        if is_fallback {
            versions.fallback = None;
        }
        is_fallback
    }
}
