//! Running functions that are moved through all tiers before each first call, for tests
//! ([`Tiers::Churn`]). Functions of units stay where they are: a worker that asked one would wait
//! for code that may wait for a worker.

use std::sync::Arc;

use crate::error::Error;
use crate::tiers::TierState;
#[cfg(doc)]
use uruk_base::Tiers;

/// Functions that change their tier before a first call, where they are churned.
const CHURNED_EACH: usize = 4;

/// Number of functions with code above which only one changes each time: a program of a thousand
/// functions must end within seconds, too.
const CHURNED_GENTLY: usize = 64;

impl TierState {
    /// Moves the next functions in turn to another tier, under [`Tiers::Churn`].
    pub(crate) fn churn(self: &Arc<Self>) -> Result<(), Error> {
        let gently = self.churned_functions() >= CHURNED_GENTLY;
        for _ in 0..if gently { 1 } else { CHURNED_EACH } {
            let Some((id, tier)) = self.next_churned() else {
                break;
            };
            match self.compile_at(id, self.versions.ids.next(), tier) {
                // Another worker has its turn at the same function.
                Ok(()) | Err(Error::Version { .. }) => {}
                // The function was removed.
                Err(_) if self.body(id).is_none() => self.end_churn_of(id),
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}
