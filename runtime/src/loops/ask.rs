//! Continuations that an embedder requests, or forbids.

use std::sync::Arc;

use uruk_base::{FunctionId, Tier};

use crate::error::Error;
use crate::fork::gate;
use crate::loops::state::Continuations;
use crate::version::{calls, exits};

impl Continuations {
    /// Compiles continuations for the loops of a function's versions of tier 1, and offers them;
    /// returns their number.
    ///
    /// # Errors
    /// The errors of compiles.
    pub(crate) fn osr_loops(self: &Arc<Self>, id: FunctionId) -> Result<usize, Error> {
        let mut wanted = Vec::new();
        {
            let _busy = gate::enter();
            if self.forbidden().contains(&id.index()) {
                return Ok(0);
            }
            let running = self.of(id).into_iter();
            for loops in running.filter(|loops| !loops.is_closed()) {
                exits::make(self, &loops)?;
                for place in 0..loops.heads.len() {
                    wanted.extend(self.continuation(&loops, place)?);
                }
            }
        }
        for &continuation in &wanted {
            calls::compile_now(self, continuation, Some(Tier::Optimized))?;
            let _busy = gate::enter();
            self.continuation_made(continuation, true);
        }
        self.pay_for_reclaim();
        Ok(wanted.len())
    }

    /// Forbids or allows continuations of a function's loops. Under a pass.
    pub(crate) fn forbid_osr(&self, id: FunctionId, forbidden: bool) {
        let continuations = self;
        match forbidden {
            true => continuations.forbidden().insert(id.index()),
            false => continuations.forbidden().remove(&id.index()),
        };
        if forbidden {
            for loops in continuations.of(id) {
                loops.take_back();
            }
        }
    }
}
