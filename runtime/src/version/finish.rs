//! First versions of all functions that have none, before the last worker ends (`fork::confine`).

use std::sync::Arc;

use tracing::{info, warn};
use uruk_base::FunctionId;

use crate::code::body::Body;
use crate::fork::gate;
use crate::version::calls;
use crate::version::compiler::Compiler;

/// Maximal number of rounds: compiles may add functions, which are compiled in the next round.
const ROUNDS: usize = 8;

impl Compiler {
    /// Compiles each function that a call can reach and that has no code. A function that cannot be
    /// compiled is marked as failed: its calls go to the failure handler. Without a pass.
    pub(crate) fn compile_rest(self: &Arc<Self>) {
        let mut compiled = 0_u64;
        for _ in 0..ROUNDS {
            let missing = {
                let _pass = gate::enter();
                self.without_code()
            };
            if missing.is_empty() {
                break;
            }
            for id in missing {
                match calls::compile_now(self, id, None) {
                    Ok(()) => compiled += 1,
                    Err(cause) => {
                        let _pass = gate::enter();
                        warn!(function = self.name_of(id), %cause, "no code before a sandbox closes");
                        self.note_cause(id, &cause);
                        self.stubs.fail(id);
                    }
                }
            }
        }
        info!(compiled, "functions had no code yet");
    }

    /// Functions that have no code and did not fail. Continuations are excluded: a loop leads only
    /// to one with code.
    fn without_code(&self) -> Vec<FunctionId> {
        let mut compiled = self.functions_where(|body| match body {
            Body::Module(function) => function.origin.is_none(),
            Body::Object(_) => false,
            Body::Unit(_) => true,
        });
        compiled.retain(|&id| !self.stubs.has_code(id) && self.cause_of(id).is_none());
        compiled
    }
}
