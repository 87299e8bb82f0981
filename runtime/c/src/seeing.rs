//! Reports of a run, and code as text, for people.

use std::ffi::{c_char, c_int};
use std::ptr;

use uruk::Tier;
use uruk_files::OutputPath;

use crate::boundary::{Fault, give, guarded, handle, place, text, tier, tier_or_none, unusable};
use crate::dylib::{dylib_of, uruk_dylib};
use crate::error::{give_text, uruk_error, uruk_names};
use crate::session::uruk_jit;

/// The error for functions that need a session with a recorder.
fn unrecorded() -> Fault {
    unusable("jit", "its settings do not say `record`")
}

/// The machine code of a function, one instruction a line, with names for the addresses it mentions:
/// of the version that calls reach (0), or of the newest of a tier. Null where there is none such.
/// To be freed by `uruk_string_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_disassemble(
    dylib: *const uruk_dylib,
    name: *const c_char,
    tier: c_int,
    listing: *mut *mut c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) = unsafe {
            (
                dylib_of(dylib)?,
                text(name, "name")?,
                place(listing, "listing")?,
            )
        };
        let found = dylib.disassemble(name, tier_or_none(tier)?)?;
        *to = found.map_or(ptr::null_mut(), give_text);
        Ok(())
    })
}

/// The IR that machine code of a function is made of at a tier (1, 2 or 3), after all passes. It is
/// compiled for this, and nothing comes of that. To be freed by `uruk_string_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_ir(
    dylib: *const uruk_dylib,
    name: *const c_char,
    tier: c_int,
    ir: *mut *mut c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) =
            unsafe { (dylib_of(dylib)?, text(name, "name")?, place(ir, "ir")?) };
        let tier: Tier = self::tier(tier)?;
        *to = give_text(dylib.ir(name, tier)?);
        Ok(())
    })
}

/// The functions that ran most, by samples, then by counted calls; `count` of them at most. To be
/// freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_hottest(
    jit: *const uruk_jit,
    count: usize,
    names: *mut *mut uruk_names,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, to) = unsafe { (handle(jit, "jit")?, place(names, "names")?) };
        let hottest = jit.jit.hottest(count).into_iter();
        *to = give(uruk_names::of(hottest.map(|hot| hot.function)));
        Ok(())
    })
}

/// The page of the run so far: a file of HTML that needs nothing else. Of a session whose settings
/// say `record`. To be freed by `uruk_string_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_report_page(
    jit: *const uruk_jit,
    page: *mut *mut c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, to) = unsafe { (handle(jit, "jit")?, place(page, "page")?) };
        *to = give_text(jit.jit.report_page().ok_or_else(unrecorded)?);
        Ok(())
    })
}

/// Writes the timeline of the run so far to a file: JSON for Perfetto and `chrome://tracing`. A file
/// that is there is replaced by the whole text, or stays as it is after an error. Of a session
/// whose settings say `record`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_trace(
    jit: *const uruk_jit,
    path: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, path) = unsafe { (handle(jit, "jit")?, text(path, "path")?) };
        let failed = |cause: std::io::Error| unusable("path", &format!("{path}: {cause}"));
        let mut timeline = Vec::new();
        match jit.jit.trace(&mut timeline).map_err(failed)? {
            true => OutputPath::new(path)
                .and_then(|file| file.write(&timeline))
                .map_err(failed),
            false => Err(unrecorded()),
        }
    })
}
