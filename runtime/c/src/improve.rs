//! Requests for better code of a unit's functions, and their answers.
//!
//! A request is used by one thread at a time, and ends in one of the functions documented to free
//! it, whatever they return.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use uruk::{ReoptimizeRequest, SessionError};

use crate::boundary::{
    Fault, Owned, array, give, guarded, handle, number, take, text, unusable, value,
};
use crate::dylib::uruk_dylib;
use crate::error::{give_text, uruk_error};

/// The question for better code of one function.
pub struct uruk_reoptimize_request(pub(crate) ReoptimizeRequest);

/// Takes the request out of its handle, and frees the handle.
///
/// # Safety
/// As for all handles; it is not used any more.
unsafe fn ended(improvement: *mut uruk_reoptimize_request) -> Result<ReoptimizeRequest, Fault> {
    if improvement.is_null() {
        return Err(unusable("improvement", "a null pointer"));
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { Box::from_raw(improvement) }.0)
}

/// The function, as its unit knows it; to be freed by `uruk_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_function(
    improvement: *const uruk_reoptimize_request,
) -> *mut c_char {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let own = &unsafe { handle(improvement, "improvement")? }.0;
        Ok(give_text(own.jit().name_of(own.function())))
    })
}

/// The dylib that the function is in, to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_dylib(
    improvement: *const uruk_reoptimize_request,
) -> *mut uruk_dylib {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let own = &unsafe { handle(improvement, "improvement")? }.0;
        Ok(give(uruk_dylib(own.dylib())))
    })
}

/// How good the code is to be: 1, 2 or 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_tier(
    improvement: *const uruk_reoptimize_request,
) -> c_int {
    value(0, || {
        // SAFETY: the caller's promise of the handle.
        Ok(number(Some(
            unsafe { handle(improvement, "improvement")? }.0.tier(),
        )))
    })
}

/// Whether the code is no longer wanted: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_is_cancelled(
    improvement: *const uruk_reoptimize_request,
) -> c_int {
    value(1, || {
        // SAFETY: the caller's promise of the handle.
        let own = &unsafe { handle(improvement, "improvement")? }.0;
        Ok(c_int::from(own.is_cancelled()))
    })
}

/// Has `release` called with `context` once the version's code is not run any more. It is called
/// once, at once after an error, too.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_attach(
    improvement: *mut uruk_reoptimize_request,
    context: *mut c_void,
    release: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
) -> *mut uruk_error {
    guarded(|| {
        let owned = Owned::new(context, release);
        // SAFETY: the caller's promise of the handle, which no other thread uses during the call.
        let own = unsafe { improvement.as_mut() };
        let own = own.ok_or_else(|| unusable("improvement", "a null pointer"))?;
        own.0.attach(move || drop(owned));
        Ok(())
    })
}

/// Ends the improvement: links an ELF object, which is copied and defines the function. Frees
/// `improvement`, also after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_link(
    improvement: *mut uruk_reoptimize_request,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let ended = unsafe { ended(improvement)? };
        // SAFETY: the caller's promises.
        let (name, bytes) = unsafe {
            (
                text(name, "name")?,
                array(bytes.cast::<u8>(), size, "bytes")?,
            )
        };
        Ok(ended.link(name, bytes)?)
    })
}

/// Ends the improvement: calls go on at an address of the host's own. Frees `improvement`, also
/// after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_resolve(
    improvement: *mut uruk_reoptimize_request,
    address: u64,
) -> *mut uruk_error {
    // SAFETY: the caller's promise of the handle.
    guarded(|| Ok(unsafe { ended(improvement)? }.resolve(address)?))
}

/// Ends the improvement: there is no better code at this tier. Frees `improvement`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_decline(
    improvement: *mut uruk_reoptimize_request,
) {
    value((), || {
        // SAFETY: the caller's promise of the handle.
        unsafe { ended(improvement)? }.decline();
        Ok(())
    });
}

/// Ends the improvement: better code cannot be made, for the reason of the text. Frees
/// `improvement`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_fail(
    improvement: *mut uruk_reoptimize_request,
    message: *const c_char,
) {
    value((), || {
        // SAFETY: the caller's promise of the handle.
        let ended = unsafe { ended(improvement)? };
        // SAFETY: the caller's promise of the pointer.
        let message = unsafe { text(message, "message") }.unwrap_or("no reason was given");
        ended.fail(SessionError::unit("unit", message));
        Ok(())
    });
}

/// Ends the improvement without a word, which is a failure, and frees it; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_reoptimize_request_free(improvement: *mut uruk_reoptimize_request) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(improvement) };
}
