//! Reasons for which an untrusted input is rejected.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Reason for which an untrusted input was rejected.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Rejection {
    /// It is invalid; the message is LLVM's, or that of the check before it.
    Invalid(String),
    /// LLVM crashed while reading it.
    Crashed {
        /// The signal that ended the child.
        signal: i32,
    },
    /// Reading it took more than this processor time.
    ProcessorTime(Duration),
    /// Reading it was not finished after this time.
    Time(Duration),
    /// Reading it took more than this number of bytes.
    Memory(u64),
    /// The child ended without an answer, and its status is unknown.
    Silent,
    /// No child could be made.
    Unreadable(Arc<io::Error>),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Invalid(message) => f.write_str(message),
            Rejection::Crashed { signal } => {
                write!(f, "LLVM crashed while reading it (signal {signal})")
            }
            Rejection::ProcessorTime(limit) => {
                write!(
                    f,
                    "LLVM took more than {limit:?} of processor time to read it"
                )
            }
            Rejection::Time(limit) => write!(f, "LLVM had not read it after {limit:?}"),
            Rejection::Memory(limit) => {
                write!(f, "LLVM took more than {limit} bytes of memory to read it")
            }
            Rejection::Silent => f.write_str("the process that read it ended without a word"),
            Rejection::Unreadable(cause) => write!(f, "no process to read it in: {cause}"),
        }
    }
}
