//! Versions that units of embedders make: each is a unit of the session under a tracker of its own, and
//! is looked up until the embedder has answered.

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_base::locks::Mutex;
use uruk_session::{Symbol, Tracker, Unit};

use crate::code::records::BodyTracker;
use crate::error::Error;
use crate::session::Session;
use crate::version::build::Built;

/// The outcome of a version: the session does not carry the library's results or errors.
pub(super) type Outcome = Arc<Mutex<Option<Result<Built, Error>>>>;

/// Materializes a version in the session; its unit sets `outcome`, on a thread of the embedder.
pub(super) fn materialize_version<U: Unit + 'static>(
    session: &Arc<Session>,
    function: FunctionId,
    outcome: &Outcome,
    unit: impl FnOnce(Symbol, &Tracker) -> U,
) -> Result<Built, Error> {
    let versions = &session.versions;
    let number = versions.take_number();
    match materialize_unit(session, function, number, outcome, unit) {
        Ok((mut built, tracker)) => {
            built.unit = Some(BodyTracker { tracker, number });
            Ok(built)
        }
        Err(cause) => {
            versions.give_number(number);
            Err(cause)
        }
    }
}

fn materialize_unit<U: Unit + 'static>(
    session: &Arc<Session>,
    function: FunctionId,
    number: usize,
    outcome: &Outcome,
    unit: impl FnOnce(Symbol, &Tracker) -> U,
) -> Result<(Built, Tracker), Error> {
    let symbol = session.names.body_symbol(number);
    let tracker = session.names.bodies.create_tracker()?;
    tracker.define(unit(symbol, &tracker))?;
    let found = session.names.bodies.lookup(symbol);
    let built = outcome.lock().take();
    match (found, built) {
        (Ok(_), Some(Ok(built))) => Ok((built, tracker)),
        (found, built) => {
            // Removes the definition, so that a later call can try again; cancelling may have
            // removed it before.
            let _ = tracker.remove();
            let found = found.err();
            Err(match built {
                Some(Err(cause)) => cause,
                // A dependence failed after the link.
                Some(Ok(built)) => {
                    session.discard(function, built.unit, built.code);
                    session.without_symbol(function, found)
                }
                None => session.without_symbol(function, found),
            })
        }
    }
}
