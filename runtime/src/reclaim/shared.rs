//! What those ask whose code several functions share, and whose memory is more than code.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uruk_base::VersionId;
use uruk_reclaim::{BlockId, Kind};

use crate::api::error::Error;
use crate::core::Core;

use super::FOR_MORE;

impl Core {
    /// After there was no slot left for thread-locals: whether it is worth another try.
    pub(crate) fn reclaim_for_slots(self: &Arc<Self>, cause: &Error) -> bool {
        let full = matches!(cause, Error::TooManyTlsModules { .. });
        let wanted = self.reclaim.notes.wanted.load(Ordering::Relaxed);
        full && wanted && self.reclaim_now(Kind::Sweep, FOR_MORE)
    }

    /// The numbers of all code there is.
    pub(crate) fn blocks(&self) -> HashSet<BlockId> {
        let mut state = self.reclaim.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        state.hands.table.iter().map(|(id, _)| id).collect()
    }

    /// Where the code of a version that is live lies.
    pub(crate) fn block_of(&self, version: VersionId) -> Option<(Range<u64>, BlockId)> {
        let mut state = self.reclaim.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        let (block, code) = state.hands.table.live(version)?;
        Some((code.range(), block))
    }
}
