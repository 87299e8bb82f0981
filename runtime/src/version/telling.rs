//! Events of versions while they are made.

use std::time::Duration;
use uruk_base::{FunctionId, VersionId};
use uruk_tiering::Publication;

use super::build::Built;
use crate::error::Error;
use crate::events::Event;
use crate::fork::thread;
use crate::version::compiler::Compiler;
use crate::version::request::Request;

impl Compiler {
    pub(crate) fn tell_compiled(
        &self,
        request: Request,
        built: &Built,
        queued: Option<Duration>,
        started: Duration,
    ) {
        self.events.tell(|| Event::Compiled {
            id: request.function,
            function: self.name_of(request.function),
            version: request.version.0,
            tier: request.tier,
            by: built.by,
            continues: self.origin_of(request.function).is_some(),
            worker: thread::name(),
            queued,
            started,
            compiling: built.compiling,
            linking: built.linking,
            instructions: built.compiled.instructions,
            bytes: built.bytes,
        });
    }

    /// Sends the event of a publication.
    pub(super) fn tell_publication(&self, request: Request, publication: &Publication) {
        let Publication::Published { retired, .. } = publication else {
            return self.tell_dropped(request);
        };
        let id = request.function;
        self.events.tell(|| Event::Published {
            id,
            function: self.name_of(id),
            version: request.version.0,
            tier: request.tier,
            replaced: retired.and_then(|before| Some((before.0, self.tier_of(id, before)?))),
            at: self.events.now(),
        });
    }

    pub(super) fn tell_adopted(&self, id: FunctionId, version: VersionId, bytes: u64) {
        self.events.tell(|| Event::Adopted {
            id,
            function: self.name_of(id),
            version: version.0,
            bytes,
            at: self.events.now(),
        });
    }

    pub(crate) fn tell_failed(&self, request: Request, cause: &Error) {
        self.events.tell(|| Event::Failed {
            id: request.function,
            function: self.name_of(request.function),
            tier: request.tier,
            message: cause.to_string(),
            at: self.events.now(),
        });
    }

    pub(super) fn tell_dropped(&self, request: Request) {
        self.events.tell(|| Event::Dropped {
            id: request.function,
            function: self.name_of(request.function),
            version: request.version.0,
            at: self.events.now(),
        });
    }

    pub(super) fn tell_cancelled(&self, request: Request) {
        self.counters.cancelled();
        self.events.tell(|| Event::Cancelled {
            id: request.function,
            function: self.name_of(request.function),
            version: request.version.0,
            tier: request.tier,
            at: self.events.now(),
        });
    }

    pub(crate) fn tell_lost(&self, message: &str) {
        self.events.tell(|| Event::WorkerLost {
            message: message.to_owned(),
            at: self.events.now(),
        });
    }
}
