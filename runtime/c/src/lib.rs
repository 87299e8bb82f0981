//! The C interface of Uruk, as declared in `include/uruk.h`.
//!
//! | file | contents |
//! |---|---|
//! | [`boundary`] | the common start and end of every function |
//! | [`error`] | the error object, lists of names, strings |
//! | [`settings`] | a session's settings, and the callbacks among them |
//! | [`session`] | sessions |
//! | [`dylib`] | adding code, lookups of one name, functions and their tiers |
//! | [`names`] | link orders, aliases, libraries, missing symbols |
//! | [`calls`], [`traps`] | calls with checked values, whose faults are errors; interrupts |
//! | [`host`] | functions of the host that fail |
//! | [`tracker`] | code that is removed together |
//! | [`replace`] | new code for running functions |
//! | [`lookup`] | lookups of many names, synchronous or not |
//! | [`unit`], [`responsibility`], [`improve`], [`generator`] | definitions that the host makes on demand |
//! | [`events`], [`statistics`] | events; statistics and memory |
//! | [`tuning`] | the tuner: units of work, results |
//! | [`seeing`] | the page of a run, its timeline, hot functions; IR and machine code as text |
//! | [`program`] | whole programs |
//!
//! # Requirements on callers of every function
//! 1. A pointer is null, or leads to a value of its type, for the duration of the call. Texts end
//!    with a zero byte. A null pointer where one is needed is an error, not a fault.
//! 2. A handle came from this library and was not freed. Several threads may use a handle at once,
//!    except to free it.
//! 3. Callbacks return: they leave neither by an exception nor by `longjmp`. (Functions that JIT'd
//!    code calls are not callbacks: they may, over JIT'd code and `uruk_callable_call`.) They may
//!    be called on any thread, by several at once; the data behind `context` must allow that. It
//!    lives until `drop_context`, or the function's own `drop`, is called with it.
//! 4. Added code may be run in this process, and defined addresses hold values of the type that
//!    code expects for their names.
//!
//! # Guarantees
//! - No panic leaves a function: it becomes an error of the code `URUK_ERROR_PANIC`. The exception
//!   is a panic of a function that JIT'd code calls, which passes as an exception. If a callback
//!   throws, against its duty, the process ends with a message.
//! - An error changes only the state that its text names.
//! - A handle keeps its session alive; a list of names or an error does not need one.
//!
//! # Why
//! Errors are returned, not stored by thread: the compiler warns about an ignored one. Settings and
//! tables begin with their size, so a host that was compiled against an older header runs with a
//! newer library. Enumerations are integers and macros: a value that this library does not know is
//! an error instead of undefined behaviour.

#![deny(missing_docs)]
#![expect(
    non_camel_case_types,
    reason = "types are named as in the header that is made of this"
)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the duties of all functions are those above"
)]

pub mod boundary;
pub mod calls;
pub mod dylib;
pub mod error;
pub mod events;
mod faults;
pub mod generator;
pub mod host;
pub mod improve;
pub mod lookup;
pub mod names;
pub mod program;
pub mod replace;
pub mod responsibility;
pub mod seeing;
pub mod session;
pub mod settings;
pub mod statistics;
pub mod tracker;
pub mod traps;
pub mod tuning;
pub mod unit;

use std::ffi::{c_char, c_int};

/// Major version of the interface that a header declares.
pub const URUK_VERSION_MAJOR: c_int = 0;
/// Minor version. While the major version is 0, a change of it may break what was compiled
/// before.
pub const URUK_VERSION_MINOR: c_int = 1;
/// Patch.
pub const URUK_VERSION_PATCH: c_int = 0;

/// The version of the library in use, as `major * 1000000 + minor * 1000 + patch`.
#[unsafe(no_mangle)]
pub extern "C" fn uruk_version() -> c_int {
    URUK_VERSION_MAJOR * 1_000_000 + URUK_VERSION_MINOR * 1000 + URUK_VERSION_PATCH
}

/// The version of the library in use, as text; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn uruk_version_text() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of LLVM that the library was built for, as text; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn uruk_llvm_version() -> *const c_char {
    static VERSION: std::sync::OnceLock<std::ffi::CString> = std::sync::OnceLock::new();
    VERSION
        .get_or_init(|| error::c_text(uruk::llvm_version()))
        .as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_has_the_version_of_the_package() {
        let of_package = env!("CARGO_PKG_VERSION");
        let of_header = format!("{URUK_VERSION_MAJOR}.{URUK_VERSION_MINOR}.{URUK_VERSION_PATCH}");
        assert_eq!(of_package, of_header);
    }
}
