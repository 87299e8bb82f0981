//! Calls that fail: the known causes, and the handler that selects where they continue.
//!
//! A call of a function that cannot be compiled, or was removed, arrives here on its own thread and
//! stack, maybe in a signal handler. The cause of a failed compile is kept until the function is
//! removed.

use std::fmt::{self, Write};
use std::sync::{Arc, Weak};

use uruk_base::FunctionId;

use crate::code::directory::CodeDirectory;
use crate::error::Error;
use crate::fork::gate;
use crate::fork::panics::caught;
use crate::guarded::guard::leave_address;
use uruk_stubs::StubTable;

/// A call of a function that has no code.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedCall<'c> {
    /// The function.
    pub id: FunctionId,
    /// Its name; `?` for one that was removed.
    pub function: &'c str,
    /// The cause of its failed compile, or why there is no thread to compile it; `None` for one that
    /// was removed.
    pub cause: Option<&'c Error>,
}

/// Selects where failed calls continue: an address, which is entered with the call's own arguments.
/// If it panics, a guarded call fails with that cause; elsewhere the process ends, as without a
/// handler.
pub type FailedCallHandler = Arc<dyn Fn(&FailedCall<'_>) -> *const () + Send + Sync>;

/// A handler that gets only the function's number.
pub type FailureHandler = extern "C" fn(FunctionId) -> u64;

/// The treatment of a session's failed calls.
#[derive(Clone, Default)]
pub(crate) enum OnFailure {
    /// Prints a message, and ends the process.
    #[default]
    End,
    Number(FailureHandler),
    Call(FailedCallHandler),
}

/// The stubs' argument for the handler; lives as long as the session.
pub(crate) struct Context {
    code: Weak<CodeDirectory>,
    handler: OnFailure,
}

impl Context {
    /// The treatment of failed calls of functions in `code`.
    pub(crate) fn new(code: &Arc<CodeDirectory>, handler: OnFailure) -> Box<Context> {
        Box::new(Context {
            code: Arc::downgrade(code),
            handler,
        })
    }

    /// Makes the calls of functions without code arrive here. The context lives as long as any of
    /// them may be called.
    pub(crate) fn install(&self, stubs: &StubTable) {
        let address = std::ptr::from_ref(self).expose_provenance();
        stubs.set_failure_handler(failed_call, address as u64);
    }
}

extern "C" fn failed_call(id: FunctionId, context: u64) -> u64 {
    let context = std::ptr::with_exposed_provenance::<Context>(context as usize);
    // SAFETY: the session's own, which lives as long as its code may be called.
    let context = unsafe { &*context };
    if let OnFailure::Number(handler) = context.handler {
        return handler(id);
    }
    let (function, cause) = {
        let _pass = gate::enter();
        match context.code.upgrade() {
            Some(session) => (session.name_of(id), session.cause_of(id)),
            None => ("?", None),
        }
    };
    let call = FailedCall {
        id,
        function,
        cause: cause.as_deref(),
    };
    let panicked = match &context.handler {
        OnFailure::Call(handler) => match caught(|| Ok(handler(&call))) {
            Ok(next) => return next as u64,
            Err(cause) => Some(Arc::new(cause)),
        },
        _ => None,
    };
    let cause = panicked.as_ref().or(cause.as_ref());
    // A guarded call fails with the cause.
    leave_address(function, cause).unwrap_or_else(|| {
        let cause = cause.map(|cause| &**cause);
        end(&FailedCall { cause, ..call })
    })
}

/// A line that needs no allocator: the interrupted code may be in it.
struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        Ok(())
    }
}

/// Prints the failed call, and ends the process.
fn end(call: &FailedCall<'_>) -> ! {
    print(call);
    // SAFETY: ends the process: no handler could run in a defined state.
    unsafe { libc::_exit(uruk_stubs::FAILURE_STATUS) }
}

/// Prints the failed call, without the allocator.
pub(crate) fn print(call: &FailedCall<'_>) {
    let mut line = Line {
        bytes: [0; 1024],
        len: 0,
    };
    // Writing to it does not fail.
    let _ = write!(line, "uruk: call of {}, which has no code", call.function);
    let mut cause: Option<&dyn std::error::Error> = call.cause.map(|cause| cause as _);
    while let Some(error) = cause {
        let _ = write!(line, ": {error}");
        cause = error.source();
    }
    line.len = line.len.min(line.bytes.len() - 1);
    let _ = line.write_str("\n");
    // SAFETY: writes a live buffer.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}
