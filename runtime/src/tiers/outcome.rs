//! Outcomes of compiles in the background.

use tracing::info;
use uruk_base::Nanos;
use uruk_tiering::{Outcome, Publication};

use super::background::Runs;
use crate::error::Error;
use crate::tiers::TierState;
use crate::version::request::Made;
use crate::version::request::Request;

impl TierState {
    /// The outcome of a background compile, and the version that runs now.
    pub(super) fn outcome(
        &self,
        request: Request,
        result: Result<Made, Error>,
        compile: Nanos,
    ) -> (Outcome, Option<Runs>) {
        match result {
            Ok(made) => match made.publication {
                Publication::Published { .. } => {
                    let counters = made.counts;
                    let runs = Runs { request, counters };
                    (Outcome::Published { compile, counters }, Some(runs))
                }
                Publication::Held | Publication::Dropped(_) => (Outcome::Late { compile }, None),
            },
            Err(Error::Heap(cause)) => {
                let function = self.name_of(request.function);
                info!(function, %cause, "no memory for a better version");
                (Outcome::NoMemory, None)
            }
            Err(Error::Version { cause, .. }) if cause.is_late() => {
                (Outcome::Late { compile }, None)
            }
            Err(cause) if cause.is_cancelled() => (Outcome::Cancelled, None),
            Err(cause) => {
                let function = self.name_of(request.function);
                info!(function, %cause, "a background compile failed");
                (Outcome::Failed { compile }, None)
            }
        }
    }
}
