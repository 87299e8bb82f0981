//! Functions of the host that can end the guarded call in which JIT'd code called them.
//!
//! | function | failure |
//! |---|---|
//! | of `uruk_dylib_define_host` | it returns an error |
//! | of `uruk_dylib_define_function` or `uruk_dylib_define_address` | it calls `uruk_raise`, throws an exception, or jumps over the guarded call |

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use uruk::{HostError, HostFunction, Val, raise_error};

use crate::boundary::{Fault, Owned, guarded, text, unusable};
use crate::calls::{URUK_VALUE_VOID, uruk_bits, uruk_value, val_of, value_of};
use crate::dylib::{dylib_of, uruk_dylib};
use crate::error::uruk_error;

/// A function of the host: it has `count` values, of the kinds that its type says, and writes its own
/// to `result`, kind and bits; nothing where its type says `void`. It answers null, or an error, which
/// is freed and ends the guarded call that JIT'd code called it in.
pub type uruk_host_body = Option<
    unsafe extern "C-unwind" fn(
        context: *mut c_void,
        values: *const uruk_value,
        count: usize,
        result: *mut uruk_value,
    ) -> *mut uruk_error,
>;

/// An error of the host's, whose ownership is taken.
///
/// # Safety
/// `error` is null, or an error that is not used after this.
unsafe fn taken(error: *mut uruk_error) -> HostError {
    match error.is_null() {
        true => Arc::new(*unusable("error", "a null pointer")),
        // SAFETY: by the caller's promise.
        false => Arc::new(*unsafe { Box::from_raw(error) }),
    }
}

/// Calls the host's function; returns its result, or its error.
fn answer(body: uruk_host_body, owned: &Owned, given: &[Val]) -> Result<Val, HostError> {
    let refuse = |fault: Fault| -> HostError { Arc::new(*fault) };
    let Some(body) = body else {
        return Ok(Val::Void);
    };
    let values = given.iter().map(value_of);
    let values: Vec<uruk_value> = values.collect::<Result<_, Fault>>().map_err(refuse)?;
    let mut result = uruk_value {
        kind: URUK_VALUE_VOID,
        bits: uruk_bits { integer: 0 },
    };
    // SAFETY: the host's own callback.
    let error = unsafe { body(owned.get(), values.as_ptr(), values.len(), &raw mut result) };
    if !error.is_null() {
        // SAFETY: callbacks give ownership of their errors.
        return Err(unsafe { taken(error) });
    }
    match result.kind {
        URUK_VALUE_VOID => Ok(Val::Void),
        _ => val_of(&result).map_err(refuse),
    }
}

/// Gives a name to a function of the host that can fail: its error ends the guarded call that JIT'd
/// code called it in, with `URUK_TRAP_HOST`, and is the error's `uruk_error_cause`. So do a result of
/// another kind than its type says, and an integer that does not fit. Outside of guarded calls it ends
/// the process with a message. `type` is its type as LLVM writes it, of numbers and pointers; modules
/// that declare it otherwise are refused. `drop` is called once with `context`: when no
/// code can call it any more, or at once after an error, whichever argument was in the way.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_define_host(
    dylib: *const uruk_dylib,
    name: *const c_char,
    r#type: *const c_char,
    body: uruk_host_body,
    context: *mut c_void,
    drop: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
) -> *mut uruk_error {
    guarded(|| {
        let owned = Owned::new(context, drop);
        if body.is_none() {
            return Err(unusable("body", "a null pointer"));
        }
        // SAFETY: the caller's promises.
        let (dylib, name, ty) =
            unsafe { (dylib_of(dylib)?, text(name, "name")?, text(r#type, "type")?) };
        let function = HostFunction::of_values(ty, move |given| {
            // Captures the whole struct, not only the pointer.
            let owned = &owned;
            answer(body, owned, given)
        })?;
        Ok(dylib.define_fns([(name, function)])?)
    })
}

/// Ends the guarded call that the calling function runs in by an error: the call's
/// error has `URUK_TRAP_HOST`, and this one is its `uruk_error_cause`. For functions of the host
/// that JIT'd code calls: frames between, of C and JIT'd code, are left as by `longjmp`. It comes
/// back, with `error`, which stays the caller's, where there is no guarded call to be ended:
/// outside of such, and in callbacks of the library. Frees `error` where it does not come back.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn uruk_raise(error: *mut uruk_error) -> *mut uruk_error {
    // SAFETY: frames between are of the host's C and of JIT'd code, by the caller's promise;
    // callbacks of the library, which have library frames below them, cover the call. Ownership of
    // the error is taken.
    unsafe { raise_error(|| taken(error)) };
    error
}
