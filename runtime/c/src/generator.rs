//! Generators: callbacks of a dylib for symbols that it does not define.
//!
//! A request is used by one thread at a time, and ends in `uruk_generator_request_finish`, which
//! frees it.

use std::ffi::{c_int, c_void};
use std::ptr;

use uruk::{Generator, GeneratorRequest, LookupKind, Need, SessionError};

use crate::boundary::{Fault, Owned, give, guarded, handle, unusable, value};
use crate::dylib::{dylib_of, uruk_dylib};
use crate::error::{uruk_error, uruk_names};
use crate::lookup::{URUK_LOOKUP_DLSYM, URUK_LOOKUP_STATIC};
use crate::names::{tell, uruk_generator};

/// A lookup inside a generator.
pub struct uruk_generator_request(GeneratorRequest);

struct HostGenerator {
    generate: unsafe extern "C-unwind" fn(*mut c_void, *mut uruk_generator_request),
    owned: Owned,
}

impl Generator for HostGenerator {
    fn generate(&self, ask: GeneratorRequest) {
        let ask = give(uruk_generator_request(ask));
        // SAFETY: the host's own callback, which takes the request.
        unsafe { (self.generate)(self.owned.get(), ask) };
    }
}

/// Has what a dylib lacks be made by `generate`, after those that were added before. It defines
/// what it can in the dylib and calls `uruk_generator_request_finish`, now or later; not to define anything is
/// no error. `drop` is called once with `context`: when it is not asked any more, or at once after an
/// error. `generator`, which may be null, is given a handle to remove it by, to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_generator(
    dylib: *const uruk_dylib,
    generate: Option<
        unsafe extern "C-unwind" fn(context: *mut c_void, ask: *mut uruk_generator_request),
    >,
    context: *mut c_void,
    drop: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
    generator: *mut *mut uruk_generator,
) -> *mut uruk_error {
    guarded(|| {
        let owned = Owned::new(context, drop);
        let generate = generate.ok_or_else(|| unusable("generate", "a null pointer"))?;
        // SAFETY: the caller's promise of the handle.
        let dylib = unsafe { dylib_of(dylib)? };
        let id = dylib.add_generator(HostGenerator { generate, owned })?;
        // SAFETY: the caller's promise of the pointer.
        unsafe { tell(generator, dylib, id) };
        Ok(())
    })
}

/// The dylib that asks, to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_request_dylib(
    ask: *const uruk_generator_request,
) -> *mut uruk_dylib {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let ask = unsafe { handle(ask, "ask")? };
        Ok(give(uruk_dylib(ask.0.dylib())))
    })
}

/// The names without a definition so far, to be freed; `required` is 1 for those only that the
/// lookup fails without, 0 for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_request_missing(
    ask: *const uruk_generator_request,
    required: c_int,
) -> *mut uruk_names {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let ask = &unsafe { handle(ask, "ask")? }.0;
        let missing = ask.missing().iter();
        let missing = missing.filter(|(_, need)| required == 0 || *need == Need::Required);
        let names = missing.map(|(symbol, _)| ask.jit().name_of(*symbol));
        Ok(give(uruk_names::of(names)))
    })
}

/// Why they are looked up: one of `URUK_LOOKUP_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_request_kind(ask: *const uruk_generator_request) -> c_int {
    value(URUK_LOOKUP_STATIC, || {
        // SAFETY: the caller's promise of the handle.
        Ok(match unsafe { handle(ask, "ask")? }.0.kind() {
            LookupKind::Static => URUK_LOOKUP_STATIC,
            LookupKind::Dlsym => URUK_LOOKUP_DLSYM,
        })
    })
}

/// Does `work` on behalf of the question: who answers elsewhere than within `generate`, and
/// looks something up for it, does so in here.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_request_scope(
    ask: *const uruk_generator_request,
    work: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
    context: *mut c_void,
) -> *mut uruk_error {
    guarded(|| {
        let work = work.ok_or_else(|| unusable("work", "a null pointer"))?;
        // SAFETY: the caller's promise of the handle.
        let ask = unsafe { handle(ask, "ask")? };
        // SAFETY: the host's own callback.
        ask.0.scope(|| unsafe { work(context) });
        Ok(())
    })
}

/// Ends the question: sends the lookup on its way, or fails it by an error, which may be null. What
/// was defined for it has to be in the dylib before. Frees `ask` and `error`, also after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_request_finish(
    ask: *mut uruk_generator_request,
    error: *mut uruk_error,
) -> *mut uruk_error {
    guarded(|| {
        let failure: Option<Fault> = match error.is_null() {
            true => None,
            // SAFETY: the caller's promise of the error: it is given away.
            false => Some(unsafe { Box::from_raw(error) }),
        };
        if ask.is_null() {
            return Err(unusable("ask", "a null pointer"));
        }
        // SAFETY: the caller's promise of the handle.
        let ask = unsafe { Box::from_raw(ask) }.0;
        ask.finish::<SessionError>(match failure {
            None => Ok(()),
            Some(failure) => Err(SessionError::unit("generator", failure.shown())),
        });
        Ok(())
    })
}
