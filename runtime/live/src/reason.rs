//! Reasons why functions stay native, as text for the table.

use std::fmt;

/// Why a function is not compiled again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It uses a variable that the optimizer removed or split.
    Variable(String),
    /// It uses a thread-local in a way, or of a file, that is not known natively.
    ThreadLocal(String),
    /// It can be suspended, and resumed on another thread.
    Coroutine,
    /// It has assembly that may name symbols which only the linker knew.
    Assembly,
    /// It passes its address, and those of functions inlined in it, to hooks.
    Instrumented,
    /// It calls a function that is defined nowhere: natively all calls were inlined.
    Missing(String),
    /// It calls a function of the dynamic loader whose result depends on the caller.
    Asks(String),
    /// It calls a refused function without native code that its callers could call.
    Calls(String),
    /// Its labels are data, and it has no native code of its own: the labels may be in its callers'
    /// code.
    Labels,
    /// It keeps, or compares, the address of a string with several copies.
    Text(String),
    /// This many functions without native code must be compiled before its code runs.
    Needs(usize),
    /// It is `main`: no call leads to new code.
    Once,
    /// It is, or calls, a library's function that a function of another file with that name replaces:
    /// the native code may have either.
    Interposed(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Variable(name) => {
                write!(f, "uses `{name}`, which the optimizer removed or renamed")
            }
            Reason::ThreadLocal(name) => {
                write!(
                    f,
                    "uses the thread-local `{name}`, whose place is not known"
                )
            }
            Reason::Coroutine => f.write_str("is a coroutine"),
            Reason::Assembly => f.write_str("has assembly that may name symbols"),
            Reason::Instrumented => f.write_str("tells hooks its address (-finstrument-functions)"),
            Reason::Missing(name) => write!(f, "calls `{name}`, which was inlined and is nowhere"),
            Reason::Asks(name) => {
                write!(
                    f,
                    "calls `{name}`, whose answer depends on the file of the caller"
                )
            }
            Reason::Calls(name) => write!(f, "calls `{name}`, which is refused and was inlined"),
            Reason::Labels => f.write_str("has labels whose addresses are data, and was inlined"),
            Reason::Text(text) => write!(f, "keeps the address of {text:?}, which is there twice"),
            Reason::Needs(count) => {
                write!(
                    f,
                    "may call {count} functions that would be compiled before it"
                )
            }
            Reason::Once => f.write_str("is called once"),
            Reason::Interposed(name) => {
                write!(
                    f,
                    "has to do with `{name}`, in whose place another file has one"
                )
            }
        }
    }
}
