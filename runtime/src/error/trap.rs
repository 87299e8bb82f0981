//! Traps: the errors of guarded calls, with the event and its place.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Error;

/// An error that a function of the host raised ([`HostFn`](crate::HostFn)).
pub type HostError = Arc<dyn std::error::Error + Send + Sync>;

/// A trap: the reason why a guarded call did not return ([`Func::call_guarded`](crate::Func)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Trap {
    /// The event.
    pub kind: TrapKind,
    /// The stack, innermost frame first, up to the guarded call; at most [`Trap::FRAMES`] frames.
    pub backtrace: Vec<Frame>,
}

/// The event that ended a guarded call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TrapKind {
    /// An integer was divided by zero, or its quotient does not fit.
    Division,
    /// A floating-point operation, where the program enables traps.
    FloatingPoint,
    /// An invalid instruction: `llvm.trap`, and unreachable code of C and Rust.
    Illegal,
    /// A breakpoint: `llvm.debugtrap`.
    Breakpoint,
    /// An access to memory that is unmapped, or not allowed.
    Memory {
        /// The address, if the processor reports it.
        address: u64,
        /// The kind of access.
        access: Access,
    },
    /// The stack overflowed.
    StackOverflow,
    /// A function of the host raised an error.
    Host(HostError),
    /// A called function has no code.
    NotCompiled {
        /// The function.
        function: String,
        /// The cause of its failed compile; `None` for a function that was removed.
        cause: Option<Arc<Error>>,
    },
    /// The call was interrupted by [`Jit::interrupt`](crate::Jit::interrupt).
    Interrupted,
    /// It used more fuel than [`Func::with_fuel`](crate::Func::with_fuel) allows.
    OutOfFuel,
    /// It was not made: it has a fuel limit, and its session's code counts no fuel
    /// ([`JitBuilder::count_fuel`](crate::JitBuilder::count_fuel)).
    NotCounted,
    /// The call took longer than [`Func::within`](crate::Func::within) allows.
    Deadline(Duration),
    /// It was not made: the system refused the named resource. A call with a time limit needs a
    /// timer; there are as many as signals that may be pending (`ulimit -i`).
    Refused(&'static str),
}

/// The kind of memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// A read.
    Read,
    /// A write.
    Write,
    /// An instruction fetch, as by a call of a null pointer.
    Execute,
}

/// A frame of a backtrace.
///
/// A call that continued in an OSR continuation of its loop has two frames on the stack and one
/// here: that of the continuation, with the name of the function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The function, if its name is known.
    pub function: Option<String>,
    /// Whether it is code of a session.
    pub jitted: bool,
    /// The line of its source, if the session keeps lines
    /// ([`ToolSettings::lines`](crate::ToolSettings::lines)); where calls were inlined, the innermost.
    pub source: Option<Source>,
    address: HiddenAddress,
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// The file, as the compiler that made the bitcode recorded it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An address of code, stored as its complement. A search of all memory for suspended calls would
/// mistake the address itself for one, as long as the host keeps the trap.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HiddenAddress(u64);

impl HiddenAddress {
    fn of(address: u64) -> HiddenAddress {
        HiddenAddress(!address)
    }
}

impl fmt::Debug for HiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", !self.0)
    }
}

impl Frame {
    /// A frame of code of a session.
    pub(crate) fn jitted(address: u64, function: Option<String>, source: Option<Source>) -> Frame {
        Frame {
            function,
            jitted: true,
            source,
            address: HiddenAddress::of(address),
        }
    }

    /// A frame of other code.
    pub(crate) fn native(address: u64, function: Option<String>) -> Frame {
        Frame {
            function,
            jitted: false,
            source: None,
            address: HiddenAddress::of(address),
        }
    }

    /// The instruction; for callers the one after the call.
    pub fn address(&self) -> u64 {
        !self.address.0
    }
}

impl Trap {
    /// Maximal frames of a backtrace.
    pub const FRAMES: usize = 64;

    /// The function in which it happened, if its name is known.
    pub fn function(&self) -> Option<&str> {
        self.backtrace.first()?.function.as_deref()
    }

    /// The error that a function of the host raised, if it is an `E`.
    pub fn host_error<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match &self.kind {
            TrapKind::Host(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for TrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrapKind::Division => f.write_str("division by zero, or its result does not fit"),
            TrapKind::FloatingPoint => f.write_str("floating-point exception"),
            TrapKind::Illegal => f.write_str("trap"),
            TrapKind::Breakpoint => f.write_str("breakpoint"),
            TrapKind::Memory { address, access } => {
                let what = match access {
                    Access::Read => "read",
                    Access::Write => "written",
                    Access::Execute => "run",
                };
                write!(f, "memory at {address:#x} cannot be {what}")
            }
            TrapKind::StackOverflow => f.write_str("stack overflow"),
            TrapKind::Host(error) => write!(f, "{error}"),
            TrapKind::NotCompiled { function, cause } => {
                write!(f, "{function} has no code")?;
                let mut told = String::new();
                let mut next = cause
                    .as_deref()
                    .map(|it| it as &(dyn std::error::Error + 'static));
                // A unit's own error is the source of one that only names symbols.
                while let Some(cause) = next {
                    let text = cause.to_string();
                    if !told.contains(&text) {
                        write!(f, ": {text}")?;
                    }
                    told.push_str(&text);
                    next = cause.source();
                }
                Ok(())
            }
            TrapKind::Interrupted => f.write_str("interrupted"),
            TrapKind::OutOfFuel => f.write_str("out of fuel"),
            TrapKind::NotCounted => f.write_str("fuel, where passes are not counted"),
            TrapKind::Refused(what) => write!(f, "not called: the system refuses {what}"),
            TrapKind::Deadline(limit) => write!(f, "not done within {limit:?}"),
        }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        let names = self.backtrace.iter().map(|frame| {
            let name = match &frame.function {
                Some(name) => Cow::Borrowed(name.as_str()),
                None => Cow::Owned(format!("{:#x}", frame.address())),
            };
            match &frame.source {
                Some(source) => Cow::Owned(format!("{name} ({source})")),
                None => name,
            }
        });
        for (index, call) in folded(&names.collect::<Vec<_>>()).into_iter().enumerate() {
            f.write_str(if index == 0 { " in " } else { ", called by " })?;
            write!(f, "{}", call.names.join(", called by "))?;
            if call.times > 1 {
                write!(f, " ({} times)", call.times)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Trap {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            TrapKind::Host(error) => error.source(),
            TrapKind::NotCompiled { cause, .. } => cause.as_ref()?.source(),
            _ => None,
        }
    }
}

/// Names of frames that repeat this number of times.
#[derive(Debug, PartialEq, Eq)]
struct Folded<'a> {
    names: &'a [Cow<'a, str>],
    times: usize,
}

/// The longest cycle of functions that is folded.
const CYCLE: usize = 4;

/// Folds recursion: a repeated cycle is named once, with its count.
fn folded<'a>(names: &'a [Cow<'a, str>]) -> Vec<Folded<'a>> {
    let mut all = Vec::new();
    let mut rest = names;
    while !rest.is_empty() {
        let times = |length: &usize| {
            let (cycle, _) = rest.split_at(*length);
            rest.chunks_exact(*length)
                .take_while(|&next| next == cycle)
                .count()
        };
        let lengths = 1..=CYCLE.min(rest.len() / 2);
        // A single name is no cycle; of equally long ones the shortest is used.
        let length = lengths.into_iter().find(|length| times(length) > 1);
        let length = length.unwrap_or(1);
        let times = times(&length);
        all.push(Folded {
            names: &rest[..length],
            times,
        });
        rest = &rest[length * times..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Cow, folded};

    #[test]
    fn recursion_is_folded() {
        let told = |text: &str| -> Vec<(String, usize)> {
            let names: Vec<Cow<'_, str>> = text.split_whitespace().map(Cow::Borrowed).collect();
            let all = folded(&names);
            all.iter()
                .map(|it| (it.names.join(" "), it.times))
                .collect()
        };
        let one = |name: &str, times| (name.to_owned(), times);
        assert_eq!(told(""), []);
        assert_eq!(told("a b c"), [one("a", 1), one("b", 1), one("c", 1)]);
        assert_eq!(told("a a a b"), [one("a", 3), one("b", 1)]);
        assert_eq!(
            told("x a b a b a"),
            [one("x", 1), one("a b", 2), one("a", 1)]
        );
    }
}
