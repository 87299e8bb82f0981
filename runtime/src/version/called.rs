//! Over native code: the callees of a version have code before the version is published.
//!
//! A call of a function that cannot be compiled ends the process. A native program must not end for
//! that reason: as long as its own code runs, no call needs a compile. So a version that replaces
//! native code is published once each function it calls has code, and fails if one cannot be
//! compiled: then native code runs on.
//!
//! Most of these callees never run: SQLite's loop may call 660 such functions. So they start at
//! tier 1, and are promoted as usual, except functions known to be hot. Those are functions with
//! samples in their native code; or, as inlined native code has no samples of its own, functions
//! that optimized code calls. SQLite's 660 take 1.3 s instead of 20, nearly all of it for hot
//! functions.
//!
//! # Invariants
//! - Functions that call each other in a cycle are compiled once each: a function [in
//!   progress](MAKING) on this thread is skipped.
//! - A function that failed to compile is not tried again: its cause is that of all its callers.

use std::sync::Arc;

use uruk_base::{FunctionId, ThreadStack, Tier};
use uruk_codegen::fatal;
use uruk_tiering::Purpose;

use crate::error::Error;
use crate::version::compiler::Compiler;
use crate::version::request::Request;

/// Samples in a function's native code from which it counts as hot.
const SAMPLES: u32 = 2;

thread_local! {
    /// Functions that are being compiled for a caller.
    static MAKING: ThreadStack<FunctionId> = const { ThreadStack::new() };
}

impl Compiler {
    /// Compiles those of these functions that have no code, for code of tier `by`. On a thread that
    /// LLVM can stop, under a pass.
    ///
    /// # Errors
    /// The cause if one of them cannot be compiled.
    pub(super) fn make_called(
        self: &Arc<Self>,
        by: Tier,
        called: &[FunctionId],
    ) -> Result<(), Error> {
        for &id in called {
            let under_way = MAKING.with(|making| making.read(|all| all.contains(&id)));
            if under_way || self.stubs.has_code(id) || self.function(id).is_none() {
                continue;
            }
            if let Some(cause) = self.cause_of(id) {
                return Err((*cause).clone());
            }
            MAKING.with(|making| making.push(id));
            let made = self.make_for_caller(by, id);
            MAKING.with(ThreadStack::pop);
            made?;
        }
        Ok(())
    }

    fn make_for_caller(self: &Arc<Self>, by: Tier, id: FunctionId) -> Result<(), Error> {
        let version = self.versions.ids.next();
        let tier = match self.engines().native_samples(id) {
            Some(samples) if samples >= SAMPLES => Tier::Optimized,
            None if by > Tier::Baseline => Tier::Optimized,
            _ => Tier::Baseline,
        };
        let request = Request {
            function: id,
            version,
            tier,
            purpose: Purpose::First,
            ahead: false,
        };
        let compiler = Arc::clone(self);
        let on_fatal = move |message: &str| {
            compiler.versions.seen(id).fail(version);
            let cause = compiler.fatal(id, message);
            compiler.tell_failed(request, &cause);
            compiler.fail(id, &cause);
        };
        let make = || self.make_first_at(id, version, tier);
        let made = match fatal::is_guarded() {
            true => fatal::within(on_fatal, make),
            // LLVM is refused: the function that needs it is compiled again, under a guard.
            false => make(),
        };
        made.inspect_err(|cause| {
            if !cause.is_cancelled() && !cause.is_refusal() {
                self.fail(id, cause);
            }
        })
    }
}
