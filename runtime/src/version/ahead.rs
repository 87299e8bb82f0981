//! First versions of functions before their first call. Their code is *prepared*: the first call
//! stores it into its slot. A failure is dropped: the first call compiles again, and reports it.

use std::sync::Arc;

use tracing::debug;
use uruk_base::FunctionId;
use uruk_codegen::{Cancellation, fatal};
use uruk_tiering::{Publication, Purpose};

use crate::error::Error;
use crate::fork::gate::leave_lost;
use crate::fork::panics;
use crate::version::compiler::Compiler;
use crate::version::request::Request;

/// The outcome of a version that is compiled before any call.
pub(crate) struct Ahead {
    /// Whether it is prepared.
    pub(crate) published: bool,
    /// The text of a panic.
    pub(crate) panic: Option<String>,
}

impl Compiler {
    /// Compiles a function for its first call. On a worker, under a pass. If LLVM stops the thread,
    /// `lost` gets LLVM's message, and must start another worker in its place.
    pub(crate) fn make_ahead(
        self: &Arc<Self>,
        id: FunctionId,
        cancel: &Cancellation,
        lost: impl Fn(&str) + 'static,
    ) -> Ahead {
        let request = Request {
            function: id,
            version: self.versions.ids.next(),
            tier: self.choices.first(),
            purpose: Purpose::First,
            ahead: true,
        };
        let on_fatal = {
            let compiler = Arc::clone(self);
            move |message: &str| {
                compiler.versions.seen(id).fail(request.version);
                lost(message);
                leave_lost();
            }
        };
        let made = fatal::guard(on_fatal, || {
            panics::caught(|| self.make(request, None, cancel))
        });
        let published = match &made {
            Ok(made) if matches!(made.publication, Publication::Published { .. }) => {
                let now = self.events.now();
                self.engines().compiled(now, id, request.tier, made);
                true
            }
            Ok(_) => false,
            Err(cause) => {
                debug!(function = self.name_of(id), %cause, "not compiled ahead");
                false
            }
        };
        let panic = made
            .err()
            .as_ref()
            .and_then(Error::panic)
            .map(str::to_owned);
        Ahead { published, panic }
    }
}
