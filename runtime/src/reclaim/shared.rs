//! Queries for code that several functions share, and for memory that holds more than code.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use uruk_base::VersionId;
use uruk_reclaim::{BlockId, Kind};

use crate::error::Error;
use crate::reclaim::Reclaim;

use super::FOR_MORE;

impl Reclaim {
    /// Called when there was no slot left for thread-locals; returns whether another try is worth
    /// it.
    pub(crate) fn reclaim_for_slots(self: &Arc<Self>, cause: &Error) -> bool {
        let full = matches!(cause, Error::TooManyTlsModules { .. });
        let wanted = self.notes.has_work();
        full && wanted && self.reclaim_now(Kind::Sweep, FOR_MORE)
    }

    /// The numbers of all blocks of code.
    pub(crate) fn blocks(&self) -> HashSet<BlockId> {
        let mut state = self.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        state.hands.table.iter().map(|(id, _)| id).collect()
    }

    /// The address and the block of the code of a live version.
    pub(crate) fn block_of(&self, version: VersionId) -> Option<(Range<u64>, BlockId)> {
        let mut state = self.state();
        self.read_notes(&mut state, self.reclaim_now_time());
        let (block, code) = state.hands.table.live(version)?;
        Some((code.range(), block))
    }
}
