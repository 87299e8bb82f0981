//! Trackers: code added together is removed together.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use uruk::Tracker;

use crate::boundary::{Fault, Owned, array, give, guarded, handle, place, take, text, value};
use crate::dylib::{bitcode_of, dylib_of, uruk_dylib};
use crate::error::uruk_error;
use crate::names::{definitions_of, uruk_definition};
use crate::settings::LLVMOpaqueModule;

/// The handle by which a set of definitions of one dylib is removed. To free it leaves what is
/// under it to the dylib.
pub struct uruk_tracker(pub(crate) Tracker);

/// The tracker behind a handle.
///
/// # Safety
/// As for all handles.
unsafe fn tracker_of<'a>(tracker: *const uruk_tracker) -> Result<&'a Tracker, Fault> {
    // SAFETY: by the caller's promise.
    unsafe { handle(tracker, "tracker") }.map(|tracker| &tracker.0)
}

/// A new tracker for definitions of a dylib. To be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_create_tracker(
    dylib: *const uruk_dylib,
    tracker: *mut *mut uruk_tracker,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, to) = unsafe { (dylib_of(dylib)?, place(tracker, "tracker")?) };
        *to = give(uruk_tracker(dylib.create_tracker()?));
        Ok(())
    })
}

/// The tracker of what is added without one. To be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_default_tracker(
    dylib: *const uruk_dylib,
    tracker: *mut *mut uruk_tracker,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, to) = unsafe { (dylib_of(dylib)?, place(tracker, "tracker")?) };
        *to = give(uruk_tracker(dylib.default_tracker()?));
        Ok(())
    })
}

/// Frees a handle of a tracker; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_free(tracker: *mut uruk_tracker) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(tracker) };
}

/// As `uruk_dylib_add_ir`, under this tracker.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_add_ir(
    tracker: *const uruk_tracker,
    name: *const c_char,
    ir: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (tracker, name, ir) =
            unsafe { (tracker_of(tracker)?, text(name, "name")?, text(ir, "ir")?) };
        Ok(tracker.add_ir(name, ir)?)
    })
}

/// As `uruk_dylib_add_bitcode`, under this tracker.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_add_bitcode(
    tracker: *const uruk_tracker,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (tracker, name, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), size, "bytes")?;
            (tracker_of(tracker)?, text(name, "name")?, bytes)
        };
        Ok(tracker.add_bitcode(name, bytes)?)
    })
}

/// As `uruk_dylib_add_module`, under this tracker.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_add_module(
    tracker: *const uruk_tracker,
    module: *mut LLVMOpaqueModule,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (tracker, (name, bytes)) = unsafe { (tracker_of(tracker)?, bitcode_of(module)?) };
        Ok(tracker.add_bitcode(&name, bytes)?)
    })
}

/// As `uruk_dylib_add_object`, under this tracker.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_add_object(
    tracker: *const uruk_tracker,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (tracker, name, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), size, "bytes")?;
            (tracker_of(tracker)?, text(name, "name")?, bytes)
        };
        Ok(tracker.add_object(name, bytes)?)
    })
}

/// As `uruk_dylib_add_file`, under this tracker; but no archives.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_add_file(
    tracker: *const uruk_tracker,
    path: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (tracker, path) = unsafe { (tracker_of(tracker)?, text(path, "path")?) };
        Ok(tracker.add_file(Path::new(path))?)
    })
}

/// As `uruk_dylib_define_addresses`, under this tracker.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_define_addresses(
    tracker: *const uruk_tracker,
    definitions: *const uruk_definition,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the pointers and of what is there.
        unsafe {
            let tracker = tracker_of(tracker)?;
            let definitions = definitions_of(&tracker.dylib(), definitions, count)?;
            Ok(tracker.define_addresses(definitions)?)
        }
    })
}

/// Has `release` called with `context` once what is under the tracker is removed; at once if it was
/// removed before. It is called once, at once after an error, too.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_attach(
    tracker: *const uruk_tracker,
    context: *mut c_void,
    release: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
) -> *mut uruk_error {
    guarded(|| {
        let owned = Owned::new(context, release);
        // SAFETY: the caller's promise of the handle.
        let tracker = unsafe { tracker_of(tracker)? };
        Ok(tracker.attach(move || drop(owned))?)
    })
}

/// Removes the definitions of the tracker: names at once, code when no thread can return into it.
/// Destructors run on this thread. Addresses of its data must not be used any more. The handle is
/// still to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_remove(tracker: *const uruk_tracker) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the handle and of who uses what is under it.
        unsafe { tracker_of(tracker)?.remove()? };
        Ok(())
    })
}

/// Moves everything to another tracker of the same dylib.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_transfer(
    tracker: *const uruk_tracker,
    other: *const uruk_tracker,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (tracker, other) = unsafe { (tracker_of(tracker)?, &handle(other, "other")?.0) };
        Ok(tracker.transfer_to(other)?)
    })
}

/// Whether it was removed, or transferred to another: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_is_defunct(tracker: *const uruk_tracker) -> c_int {
    value(1, || {
        // SAFETY: the caller's promise of the handle.
        Ok(c_int::from(unsafe { tracker_of(tracker)? }.is_defunct()))
    })
}
