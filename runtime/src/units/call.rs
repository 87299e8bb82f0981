//! A first call of a unit's function: its body is looked up, and published once it is ready.

use std::sync::{Arc, PoisonError};

use tracing::error;
use uruk_base::FunctionId;
use uruk_session::{Lookup, Visibility};

use super::bodies::UnitBody;
use crate::api::error::Error;
use crate::core::{Body, Core};
use crate::fork::gate;

/// Has the unit of a function materialize its body now, on this thread, unless it has code.
pub(crate) fn compile_now(core: &Arc<Core>, id: FunctionId, body: &UnitBody) -> Result<(), Error> {
    let _pass = gate::enter();
    match core.stubs.entry(id) {
        Some(_) => Ok(()),
        None => core.materialize_body(id, body),
    }
}

impl Core {
    /// Answers a first call, for which somebody waits, on another thread than this one: a unit
    /// may call what is answered here.
    pub(crate) fn answer_from_unit(self: &Arc<Self>, id: FunctionId, body: UnitBody) {
        let core = Arc::clone(self);
        self.hands.start(move || {
            let _pass = gate::enter();
            if let Err(cause) = core.materialize_body(id, &body)
                && core.stubs.entry(id).is_none()
            {
                error!(function = core.name_of(id), %cause, "materialization failed");
                core.fail_body(id, &body, &cause);
            }
        });
    }

    /// Marks a function as failed whose body cannot be had, unless it was removed meanwhile: then
    /// those who waited were told by that, and its stub may be another function's by now.
    fn fail_body(&self, id: FunctionId, body: &UnitBody, cause: &Error) {
        // A stub is handed out again only after its body was taken out of here.
        let functions = self.functions.read();
        let functions = functions.unwrap_or_else(PoisonError::into_inner);
        let own = functions.get(id.index() as usize).and_then(Option::as_ref);
        if matches!(own, Some(Body::Unit(unit)) if unit.symbol == body.symbol) {
            self.fail(id, cause);
        }
    }

    /// Looks a body up and publishes it. Under a pass.
    fn materialize_body(self: &Arc<Self>, id: FunctionId, body: &UnitBody) -> Result<(), Error> {
        let lookup = Lookup::new([(body.dylib.clone(), Visibility::All)]).symbol(body.symbol);
        let found = self.names.session().lookup(lookup)?;
        // A required symbol without an address was an error.
        let Some(address) = found.address(body.symbol) else {
            return Ok(());
        };
        if self.stubs.entry(id).is_some() {
            return Ok(());
        }
        let linked = {
            let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
            linked.remove(&id)
        };
        let published = match linked {
            // It stays its unit's: whoever removes it finds by which name it comes back.
            Some(code) => self.publish_object(id, code),
            None => self.publish_first(id, self.tiers.versions.ids.next(), address),
        };
        match published {
            // Whoever came first has published code; it will do.
            Err(Error::Version { cause, .. })
                if cause.is_late() && self.stubs.entry(id).is_some() =>
            {
                Ok(())
            }
            published => published,
        }
    }
}
