//! Why functions stay native, in words for who reads the table.

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
    /// It tells hooks its address, and that of what it inlines.
    Instrumented,
    /// It calls what is nowhere: natively all of it was inlined.
    Missing(String),
    /// It asks the dynamic loader for something that depends on whose code asks.
    Asks(String),
    /// It calls one that is refused, and that has no native code its callers could call.
    Calls(String),
    /// Its labels are data, and it has no native code of its own: these may be of its callers'.
    Labels,
    /// It keeps, or compares, the address of a string that is there several times.
    Text(String),
    /// Before code of it runs, so many functions have to be compiled that have no native code.
    Needs(usize),
    /// It is, or calls, a library's function in whose place another file has one of that name: the
    /// native code may have either.
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
            Reason::Interposed(name) => {
                write!(
                    f,
                    "has to do with `{name}`, in whose place another file has one"
                )
            }
        }
    }
}
