//! Panics on threads of the runtime, which are faults of the runtime or of a listener. They become
//! an error of the work in progress; the thread is not missing afterwards.
//!
//! | where | consequence |
//! |---|---|
//! | one compile ([`Compiler::make_as`](crate::version::compiler::Compiler)) | the version fails, callers get the failure, the event has the panic's text |
//! | a worker, around that | it ends, another takes its place: LLVM's objects of the thread may be half changed |
//! | a thread that an embedder waits for | its error |
//! | an embedder's improver | its version fails, the caller or the reporter has the text |
//! | the controller of tiers | it goes on, [`LIMIT`] times |
//! | the thread that reclaims | it frees nothing any more: its data may be wrong |
//!
//! Locks that a panic poisons are taken all the same: each says why where it matters.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use uruk_session::SessionError;

use crate::error::Error;

/// Panics after which a thread that only improves code gives up.
pub(crate) const LIMIT: u32 = 8;

/// Runs `work`; converts a panic to an error.
pub(crate) fn caught<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.unwrap_or_else(|panic| {
        Err(Error::Session(SessionError::Panicked {
            text: text(&*panic).into(),
        }))
    })
}

/// Runs `work`; returns the text if it panics.
pub(crate) fn contained(work: impl FnOnce()) -> Option<String> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.err().map(|panic| text(&*panic))
}

/// The text of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text").to_owned()
}

impl Error {
    /// The text, if it is the error of a panic.
    pub(crate) fn panic(&self) -> Option<&str> {
        match self {
            Error::Session(SessionError::Panicked { text }) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{caught, contained};

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        let number = 7;
        let error = caught::<()>(|| panic!("number {number}")).expect_err("it panicked");
        assert_eq!(error.panic(), Some("number 7"));
        assert_eq!(contained(|| panic!("plain")).as_deref(), Some("plain"));
        let odd = contained(|| std::panic::panic_any(number));
        assert_eq!(odd.as_deref(), Some("without a text"));
        assert!(caught(|| Ok(())).is_ok() && contained(|| ()).is_none());
    }
}
