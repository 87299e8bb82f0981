//! The tuner: units of work, results, and the input of the next run. The settings decide whether a
//! session has a tuner.

use std::ffi::c_char;
use std::path::Path;

use crate::boundary::{guarded, handle, place, text, unusable, value};
use crate::error::{give_text, uruk_error};
use crate::session::uruk_jit;

/// Says that so many units of work were done: requests answered, frames drawn. From the first call on,
/// functions of a session whose settings say `tune` are compared by processor time per unit, instead
/// of per entry of theirs. One atomic addition; nothing where `jit` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_work_done(jit: *const uruk_jit, units: u64) {
    value((), || {
        // SAFETY: the caller's promise.
        unsafe { handle(jit, "jit")? }.jit.work_done(units);
        Ok(())
    });
}

/// Results of the tuner so far, for people: a line for each function, and one for each trial of it,
/// those with the most trials first. Empty where the settings do not say `tune`. To be freed by
/// `uruk_string_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_tuning(
    jit: *const uruk_jit,
    lines: *mut *mut c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, to) = unsafe { (handle(jit, "jit")?, place(lines, "lines")?) };
        let views = jit.jit.tuning();
        let text: String = views.iter().map(ToString::to_string).collect();
        *to = give_text(text);
        Ok(())
    })
}

/// The same for the field `tuned_before` of another run's settings on this machine. To be freed by
/// `uruk_string_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_tuning_text(
    jit: *const uruk_jit,
    learned: *mut *mut c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, to) = unsafe { (handle(jit, "jit")?, place(learned, "learned")?) };
        *to = give_text(jit.jit.tuning_text());
        Ok(())
    })
}

/// Writes the text of `uruk_jit_tuning_text` to a file: all of it, or what is there stays.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_keep_tuning(
    jit: *const uruk_jit,
    path: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, path) = unsafe { (handle(jit, "jit")?, text(path, "path")?) };
        let kept = jit.jit.keep_tuning(Path::new(path));
        kept.map_err(|cause| unusable("path", &format!("{path}: {cause}")))
    })
}
