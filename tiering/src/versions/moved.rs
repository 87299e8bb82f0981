//! Code that moved: the same version at another address.

use crate::ids::{EntryAddress, VersionId};

use super::FunctionVersions;

impl FunctionVersions {
    /// Records that the code of `version` is also at `to`, and redirects from `from` to `to`: the
    /// slot, by `store` (as for [`publish`](FunctionVersions::publish)), or the record of the
    /// fallback. False, and no change, if the version is neither of them at `from`, the slot
    /// refused, or the function is [staged](super::Stage): then the copy is not needed.
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
