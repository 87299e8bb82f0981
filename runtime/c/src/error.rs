//! The error object; lists of names; strings that the caller frees.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use uruk::{Error, HostError, ReplaceError, SessionError, TrapKind};

use crate::boundary::{Fault, take, value};
use crate::traps::{URUK_TRAP_NONE, trap_of};

/// An argument cannot be used: null, not UTF-8, an unknown number, a struct of a wrong size.
pub const URUK_ERROR_ARGUMENT: c_int = 1;
/// A fault of the library's own, caught at its border.
pub const URUK_ERROR_PANIC: c_int = 2;
/// A file cannot be read, or is nothing that is known.
pub const URUK_ERROR_FILE: c_int = 3;
/// No memory, address space, thread or the like.
pub const URUK_ERROR_ROOM: c_int = 4;
/// IR or bitcode that is not valid, or does not compile.
pub const URUK_ERROR_CODE: c_int = 5;
/// An object that cannot be linked.
pub const URUK_ERROR_LINK: c_int = 6;
/// Two definitions of one name.
pub const URUK_ERROR_DUPLICATE: c_int = 7;
/// Symbols that nothing defines; they are the error's names.
pub const URUK_ERROR_MISSING: c_int = 8;
/// A function has another type.
pub const URUK_ERROR_SIGNATURE: c_int = 9;
/// The name is not one of a function that is compiled here.
pub const URUK_ERROR_NOT_A_FUNCTION: c_int = 10;
/// Functions could not be replaced; nothing has changed.
pub const URUK_ERROR_REPLACE: c_int = 11;
/// The session refused a definition or could not answer a lookup.
pub const URUK_ERROR_SESSION: c_int = 12;
/// It cannot be done as things are: in use, being removed, too late.
pub const URUK_ERROR_REFUSED: c_int = 13;
/// A callback of the host said that something is wrong.
pub const URUK_ERROR_CALLBACK: c_int = 14;
/// A shared library cannot be opened.
pub const URUK_ERROR_LIBRARY: c_int = 15;
/// An input was not let in by a session for untrusted ones.
pub const URUK_ERROR_UNTRUSTED: c_int = 16;
/// Anything else.
pub const URUK_ERROR_OTHER: c_int = 17;
/// A guarded call did not return; `uruk_error_trap` says why, and the error's names are a
/// backtrace.
pub const URUK_ERROR_TRAP: c_int = 18;

/// An error: a code, a text, and the names it is about.
#[derive(Debug)]
pub struct uruk_error {
    code: c_int,
    trap: c_int,
    text: CString,
    names: Vec<CString>,
    /// The error that a function of the host raised, of a guarded call that it ended.
    cause: Option<HostError>,
}

impl std::fmt::Display for uruk_error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl std::error::Error for uruk_error {}

/// Names, in an order that the function says which answers them.
pub struct uruk_names(pub(crate) Vec<CString>);

/// Text for C: up to its first zero byte.
pub(crate) fn c_text(text: impl Into<String>) -> CString {
    let mut bytes = text.into().into_bytes();
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    // The text has no zero byte any more.
    CString::new(bytes).unwrap_or_default()
}

/// A string that the caller must free.
pub(crate) fn give_text(text: impl Into<String>) -> *mut c_char {
    c_text(text).into_raw()
}

impl uruk_names {
    pub(crate) fn of<T: Into<String>>(names: impl IntoIterator<Item = T>) -> uruk_names {
        uruk_names(names.into_iter().map(|name| c_text(name)).collect())
    }
}

impl uruk_error {
    pub(crate) fn new(code: c_int, text: &str) -> Fault {
        Box::new(uruk_error {
            code,
            trap: URUK_TRAP_NONE,
            text: c_text(text),
            names: Vec::new(),
            cause: None,
        })
    }

    /// The text.
    pub(crate) fn shown(&self) -> String {
        self.text.to_string_lossy().into_owned()
    }

    pub(crate) fn of(error: &Error) -> uruk_error {
        // Append the reasons behind it that add information.
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            let more = inner.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = inner.source();
        }
        uruk_error {
            code: code_of(error),
            trap: match error {
                Error::Trap(trap) => trap_of(&trap.kind),
                _ => URUK_TRAP_NONE,
            },
            text: c_text(text),
            names: names_of(error).into_iter().map(c_text).collect(),
            cause: match error {
                Error::Trap(trap) => match &trap.kind {
                    TrapKind::Host(cause) => Some(Arc::clone(cause)),
                    _ => None,
                },
                _ => None,
            },
        }
    }
}

fn code_of(error: &Error) -> c_int {
    match error {
        Error::File { .. } | Error::UnknownFormat { .. } | Error::Archive { .. } => URUK_ERROR_FILE,
        Error::Member { cause, .. } => code_of(cause),
        // The function was removed since, or is being replaced.
        Error::Stub(cause) => match &**cause {
            uruk::StubError::Heap(_) | uruk::StubError::Full { .. } => URUK_ERROR_ROOM,
            _ => URUK_ERROR_REFUSED,
        },
        Error::Room { .. }
        | Error::Thread { .. }
        | Error::Heap(_)
        | Error::TooManyTlsModules { .. }
        | Error::Roots(_)
        | Error::ManyFaultHandlers { .. }
        | Error::Unwind(_) => URUK_ERROR_ROOM,
        Error::Layer { .. } => URUK_ERROR_CALLBACK,
        Error::Untrusted { .. } => URUK_ERROR_UNTRUSTED,
        Error::Codegen(_) => URUK_ERROR_CODE,
        Error::Link(cause) => match &**cause {
            uruk::LinkError::Missing(_) => URUK_ERROR_MISSING,
            _ => URUK_ERROR_LINK,
        },
        Error::Session(cause) => code_of_session(cause),
        Error::DuplicateSymbol { .. } | Error::CommonSize { .. } => URUK_ERROR_DUPLICATE,
        Error::MissingSymbols { .. } | Error::NoEntry { .. } => URUK_ERROR_MISSING,
        Error::Library { .. } => URUK_ERROR_LIBRARY,
        Error::Signature { .. } | Error::HostSignature { .. } | Error::Arguments { .. } => {
            URUK_ERROR_SIGNATURE
        }
        Error::Trap(_) => URUK_ERROR_TRAP,
        Error::NotAFunction { .. } => URUK_ERROR_NOT_A_FUNCTION,
        Error::Replace(cause) => match **cause {
            ReplaceError::Removed { .. } | ReplaceError::Withdrawn => URUK_ERROR_REFUSED,
            _ => URUK_ERROR_REPLACE,
        },
        Error::Leaving { .. }
        | Error::Version { .. }
        | Error::DylibInUse { .. }
        | Error::FuelUncounted
        | Error::MainDylib
        | Error::ProcessDylib
        | Error::ExecutableStacks { .. } => URUK_ERROR_REFUSED,
        _ => URUK_ERROR_OTHER,
    }
}

fn code_of_session(error: &SessionError) -> c_int {
    match error {
        SessionError::NotFound(_) => URUK_ERROR_MISSING,
        SessionError::Duplicate(_) => URUK_ERROR_DUPLICATE,
        _ => URUK_ERROR_SESSION,
    }
}

fn names_of(error: &Error) -> Vec<String> {
    let one = |name: &String| vec![name.clone()];
    match error {
        Error::MissingSymbols { missing } => missing.iter().map(|m| m.symbol.clone()).collect(),
        Error::DuplicateSymbol { symbol, .. }
        | Error::Leaving { symbol }
        | Error::CommonSize { symbol, .. } => one(symbol),
        Error::Signature { function, .. }
        | Error::HostSignature { function, .. }
        | Error::Arguments { function, .. } => one(function),
        Error::Trap(trap) => {
            let frames = trap.backtrace.iter();
            let name = |frame: &uruk::Frame| {
                let address = || format!("{:#x}", frame.address());
                frame.function.clone().unwrap_or_else(address)
            };
            frames.map(name).collect()
        }
        Error::NotAFunction { name } => one(name),
        Error::NoEntry { entry, .. } => one(entry),
        Error::Version { function, .. } => vec![(*function).to_owned()],
        Error::Library { name, .. } => one(name),
        Error::Member { cause, .. } => names_of(cause),
        Error::DylibInUse { by, .. } => by.clone(),
        Error::File { file, .. } | Error::UnknownFormat { file } => one(file),
        Error::Session(cause) => names_of_session(cause),
        Error::Replace(cause) => names_of_replacement(cause),
        _ => Vec::new(),
    }
}

fn names_of_replacement(error: &ReplaceError) -> Vec<String> {
    match error {
        ReplaceError::Nothing { functions, .. } => functions.clone(),
        ReplaceError::Fixed { symbol, .. } => vec![symbol.clone()],
        ReplaceError::Signature { function, .. } | ReplaceError::Labels { function, .. } => {
            vec![function.clone()]
        }
        ReplaceError::Global { global, .. } | ReplaceError::Users { global, .. } => {
            vec![global.clone()]
        }
        ReplaceError::Constant { constant, .. } => vec![constant.clone()],
        ReplaceError::Removed { function } => vec![function.clone()],
        ReplaceError::Interprocedural { missing, .. } | ReplaceError::Parts { missing, .. } => {
            missing.clone()
        }
        _ => Vec::new(),
    }
}

fn names_of_session(error: &SessionError) -> Vec<String> {
    let owned = |names: &uruk::Names| names.names().into_iter().map(String::from).collect();
    match error {
        SessionError::NotFound(names)
        | SessionError::Duplicate(names)
        | SessionError::DependenceFailed(names)
        | SessionError::Removed(names)
        | SessionError::InFlight(names)
        | SessionError::Abandoned(names)
        | SessionError::NotResponsible(names)
        | SessionError::Unresolved(names)
        | SessionError::SeveralAddresses(names)
        | SessionError::NullCallable(names)
        | SessionError::AliasCycle(names) => owned(names),
        SessionError::Failed { symbols, .. } => owned(symbols),
        _ => Vec::new(),
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Box::new(uruk_error::of(&error))
    }
}

impl From<SessionError> for Fault {
    fn from(error: SessionError) -> Fault {
        Error::from(error).into()
    }
}

/// The code of an error, one of `URUK_ERROR_...`; 0 for no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_code(error: *const uruk_error) -> c_int {
    // SAFETY: the caller's promise of the pointer.
    unsafe { error.as_ref() }.map_or(0, |error| error.code)
}

/// Why a guarded call did not return, one of `URUK_TRAP_...`; 0 for other errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_trap(error: *const uruk_error) -> c_int {
    // SAFETY: the caller's promise of the pointer.
    unsafe { error.as_ref() }.map_or(URUK_TRAP_NONE, |error| error.trap)
}

/// The error that a function of the host ended a guarded call by (`uruk_raise`,
/// `uruk_dylib_define_host`), with its own code, text and names; null for other errors. Lives as long
/// as `error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_cause(error: *const uruk_error) -> *const uruk_error {
    // SAFETY: the caller's promise of the pointer.
    let cause = unsafe { error.as_ref() }.and_then(|error| error.cause.as_ref());
    let cause = cause.and_then(|cause| cause.downcast_ref::<uruk_error>());
    cause.map_or(ptr::null(), ptr::from_ref)
}

/// The text of an error, which names file and symbols. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_text(error: *const uruk_error) -> *const c_char {
    // SAFETY: the caller's promise of the pointer.
    unsafe { error.as_ref() }.map_or(c"no error".as_ptr(), |error| error.text.as_ptr())
}

/// How many names an error is about.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_name_count(error: *const uruk_error) -> usize {
    // SAFETY: the caller's promise of the pointer.
    unsafe { error.as_ref() }.map_or(0, |error| error.names.len())
}

/// A name that an error is about; null beyond the last. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_name(error: *const uruk_error, index: usize) -> *const c_char {
    // SAFETY: the caller's promise of the pointer.
    let name = unsafe { error.as_ref() }.and_then(|error| error.names.get(index));
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// An error of the host's own, for callbacks that answer one and for `uruk_raise`. To be given
/// away, or freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_new(text: *const c_char) -> *mut uruk_error {
    // SAFETY: the caller's promise of the pointer.
    let text = unsafe { crate::boundary::text(text, "text") }.unwrap_or("an error without text");
    Box::into_raw(uruk_error::new(URUK_ERROR_CALLBACK, text))
}

/// Frees an error; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_error_free(error: *mut uruk_error) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(error) };
}

/// How many names a list has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_names_count(names: *const uruk_names) -> usize {
    // SAFETY: the caller's promise of the pointer.
    unsafe { names.as_ref() }.map_or(0, |names| names.0.len())
}

/// A name of a list; null beyond the last. Lives as long as the list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_names_at(names: *const uruk_names, index: usize) -> *const c_char {
    // SAFETY: the caller's promise of the pointer.
    let name = unsafe { names.as_ref() }.and_then(|names| names.0.get(index));
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// Frees a list of names; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_names_free(names: *mut uruk_names) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(names) };
}

/// Frees a string that a function answered as `char *`; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_string_free(string: *mut c_char) {
    if !string.is_null() {
        value((), || {
            // SAFETY: the caller's promise of the handle: it was made by `give_text`.
            drop(unsafe { CString::from_raw(string) });
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_errors_say_what_is_in_the_way() {
        let stub = |cause| code_of(&Error::Stub(Arc::new(cause)));
        // A replacement that conflicts with a removal, or with another replacement.
        assert_eq!(stub(uruk::StubError::GateClosed), URUK_ERROR_REFUSED);
        let full = uruk::StubError::Full {
            asked: 1,
            held: 1,
            capacity: 1,
        };
        assert_eq!(stub(full), URUK_ERROR_ROOM);
        assert_eq!(code_of(&Error::ProcessDylib), URUK_ERROR_REFUSED);
    }
}
