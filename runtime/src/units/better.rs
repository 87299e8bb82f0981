//! Requests to units for better code of their functions, and the results.
//!
//! | requested by | when | on which thread |
//! |---|---|---|
//! | the policy, a pin | a background worker has its turn | one for code of embedders |
//! | a first call, where tiers are fixed | the unit's own code is ready, and not published | the one that materialized it |
//! | an embedder | at once, after the unit's own code | the embedder's |
//!
//! [`reoptimize`](super::reoptimize) makes the code.

use std::sync::Arc;

use tracing::warn;
use uruk_base::{FunctionId, Tier};
use uruk_codegen::Cancellation;
use uruk_session::SessionError;
use uruk_tiering::{Publication, Purpose};

use super::call;
use crate::code::unit_body::UnitBody;
use crate::error::{Error, Refusal};
use crate::fork::gate;
use crate::session::Session;
use crate::version::request::Request;

/// Makes the unit of a function compile it for a tier now, on this thread, over any running
/// version.
pub(crate) fn improve_now(
    session: &Arc<Session>,
    id: FunctionId,
    unit: &UnitBody,
    tier: Tier,
) -> Result<(), Error> {
    call::compile_now(session, id, unit)?;
    let _pass = gate::enter();
    let published = session.versions.seen(id).published();
    if tier == Tier::Baseline && published.is_some_and(|version| version.tier == tier) {
        return Ok(());
    }
    if unit.improver.is_none() {
        let function = session.name_of(id);
        let cause = Refusal::Declined { tier };
        return Err(Error::Version { function, cause });
    }
    let request = Request {
        function: id,
        version: session.versions.ids.next(),
        tier,
        purpose: Purpose::Change,
        ahead: false,
    };
    let made = match session.make_better(request, unit, None, &Cancellation::new()) {
        // The function was replaced or removed meanwhile, as if right after the compile.
        Err(cause) if cause.is_cancelled() => return Ok(()),
        made => made?,
    };
    if let Publication::Published { .. } = made.publication {
        let now = session.events.now();
        session.tiers.on_published(now, id, tier, &made);
    }
    Ok(())
}

impl Session {
    /// Publishes code of the fixed tier as the first code of a function; returns whether there was
    /// some.
    pub(super) fn publish_fixed(self: &Arc<Self>, id: FunctionId, unit: &UnitBody) -> bool {
        let tier = self.choices.first();
        if tier == Tier::Baseline || unit.improver.is_none() {
            return false;
        }
        let request = Request {
            function: id,
            version: self.versions.ids.next(),
            tier,
            purpose: Purpose::First,
            ahead: false,
        };
        let made = self.make_better(request, unit, None, &Cancellation::new());
        if let Err(cause) = &made {
            self.report_unit(id, cause);
        }
        self.stubs.entry(id).is_some()
    }

    /// Reports that a unit could not make better code, for which no caller waits.
    pub(crate) fn report_unit(&self, id: FunctionId, cause: &Error) {
        let function = self.name_of(id);
        match cause {
            Error::Version { cause, .. } if cause.is_late() => {}
            Error::Version {
                cause: Refusal::Declined { .. },
                ..
            } => {}
            Error::Heap(_) => {}
            cause if cause.is_cancelled() => {}
            cause => {
                warn!(function, %cause, "no better code; the function runs on as it is");
                let error = SessionError::unit(function, cause.clone());
                gate::outside(|| self.names.session().report(&error));
            }
        }
    }
}
