//! Sessions.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::time::Duration;

use uruk::{Jit, Level, ReclaimKind, RegisteredStack, Removal};

use crate::boundary::{
    Fault, array, give, guarded, handle, place, scrub_stack, take, text, texts, unusable, value,
};
use crate::dylib::uruk_dylib;
use crate::error::{give_text, uruk_error, uruk_names};
use crate::settings::{builder, owned_of, uruk_settings};

/// A session. It lives until this handle and all other handles of it (dylibs, trackers and so
/// on) are freed; then its destructors run, and its memory goes.
pub struct uruk_jit {
    pub(crate) jit: Jit,
    main: uruk_dylib,
}

/// A stack that threads of the session run on at times.
pub struct uruk_stack(#[expect(dead_code, reason = "held")] RegisteredStack);

/// Only frees what is dead.
pub const URUK_RECLAIM_SWEEP: c_int = 0;
/// Moves live code together, too.
pub const URUK_RECLAIM_EVACUATE: c_int = 1;

impl uruk_jit {
    pub(crate) fn of(jit: Jit) -> uruk_jit {
        uruk_jit {
            main: uruk_dylib(jit.main()),
            jit,
        }
    }
}

/// The session behind a handle.
///
/// # Safety
/// As for all handles.
pub(crate) unsafe fn session<'a>(jit: *const uruk_jit) -> Result<&'a Jit, Fault> {
    // SAFETY: by the caller's promise.
    unsafe { handle(jit, "jit") }.map(|jit| &jit.jit)
}

/// Makes a session; `settings` may be null for defaults. `jit` is to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_new(
    settings: *const uruk_settings,
    jit: *mut *mut uruk_jit,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let owned = unsafe { owned_of(settings) };
        // SAFETY: the caller's promises.
        let to = unsafe { place(jit, "jit")? };
        // SAFETY: the caller's promises.
        let builder = unsafe { builder(settings, &owned)? };
        *to = std::ptr::null_mut();
        let made = builder.build()?;
        made.keep(owned);
        *to = give(uruk_jit::of(made));
        Ok(())
    })
}

/// Frees a handle of a session; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_free(jit: *mut uruk_jit) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(jit) };
}

/// The dylib where most of it happens. Not to be freed: it lives as long as `jit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_main(jit: *const uruk_jit) -> *const uruk_dylib {
    // SAFETY: the caller's promise of the handle.
    unsafe { jit.as_ref() }.map_or(std::ptr::null(), |jit| &raw const jit.main)
}

/// The dylib that stands for the process: what its libraries export. To be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_process(
    jit: *const uruk_jit,
    dylib: *mut *mut uruk_dylib,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, to) = unsafe { (session(jit)?, place(dylib, "dylib")?) };
        *to = give(uruk_dylib(jit.process()));
        Ok(())
    })
}

/// A new dylib, which searches itself and then the process; to be freed, which does not remove
/// it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_create_dylib(
    jit: *const uruk_jit,
    name: *const c_char,
    dylib: *mut *mut uruk_dylib,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, name, to) =
            unsafe { (session(jit)?, text(name, "name")?, place(dylib, "dylib")?) };
        *to = give(uruk_dylib(jit.create_dylib(name)?));
        Ok(())
    })
}

/// A new dylib that searches nothing but itself. To be freed, which does not remove it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_create_bare_dylib(
    jit: *const uruk_jit,
    name: *const c_char,
    dylib: *mut *mut uruk_dylib,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, name, to) =
            unsafe { (session(jit)?, text(name, "name")?, place(dylib, "dylib")?) };
        *to = give(uruk_dylib(jit.create_bare_dylib(name)?));
        Ok(())
    })
}

/// The dylib of that name, to be freed; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_dylib(
    jit: *const uruk_jit,
    name: *const c_char,
) -> *mut uruk_dylib {
    value(std::ptr::null_mut(), || {
        // SAFETY: the caller's promises.
        let (jit, name) = unsafe { (session(jit)?, text(name, "name")?) };
        let found = jit.dylib(name);
        Ok(found.map_or(std::ptr::null_mut(), |dylib| give(uruk_dylib(dylib))))
    })
}

/// Removes several dylibs in one step: all of them, or none. With `forced`, dylibs that search
/// them go on without; else that is an error. The handles are still to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_remove_dylibs(
    jit: *const uruk_jit,
    dylibs: *const *const uruk_dylib,
    count: usize,
    forced: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, dylibs) = unsafe { (session(jit)?, array(dylibs, count, "dylibs")?) };
        let dylibs = dylibs.iter().map(|dylib| {
            // SAFETY: the caller's promise of each handle.
            unsafe { handle(*dylib, "dylib of dylibs") }.map(|dylib| dylib.0.clone())
        });
        let dylibs: Vec<_> = dylibs.collect::<Result<_, Fault>>()?;
        let removal = match forced {
            0 => Removal::Refused,
            _ => Removal::Forced,
        };
        // SAFETY: they are not in use, by the caller's promise.
        unsafe { jit.remove_dylibs(&dylibs, removal)? };
        Ok(())
    })
}

/// Lets all dylibs that search the process use what a shared library exports.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_add_library(
    jit: *const uruk_jit,
    name: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, name) = unsafe { (session(jit)?, text(name, "name")?) };
        Ok(jit.add_library(name)?)
    })
}

/// Runs the constructors of everything that was added since the last call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_initialize(jit: *const uruk_jit) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the handle and of the code.
        unsafe { session(jit)?.initialize()? };
        Ok(())
    })
}

/// Runs the destructors of what `uruk_jit_initialize` initialized.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_deinitialize(jit: *const uruk_jit) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the handle and of the code.
        unsafe { session(jit)?.deinitialize() };
        Ok(())
    })
}

/// Holds promotions to better tiers (`paused` is 1), or lets them go on (0).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_pause_tiers(
    jit: *const uruk_jit,
    paused: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let jit = unsafe { session(jit)? };
        match paused {
            0 => jit.resume_tiers(),
            _ => jit.pause_tiers(),
        }
        Ok(())
    })
}

/// Holds sampling (`paused` is 1), or lets it go on (0).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_pause_sampling(
    jit: *const uruk_jit,
    paused: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let jit = unsafe { session(jit)? };
        match paused {
            0 => jit.resume_sampling(),
            _ => jit.pause_sampling(),
        }
        Ok(())
    })
}

/// Prepares the process for a sandbox that allows only the system calls of the host (seccomp, also
/// for all threads, or strict mode): all functions of all sessions that have no code are compiled,
/// and the threads of the library end. From then on code that is there runs, without a system call of
/// the library's, exceptions pass and guarded calls catch their traps; nothing is compiled any more. To
/// be called before the filter is installed, without locks that the host's callbacks take, and not in
/// such a callback. It cannot be undone.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn uruk_prepare_sandbox() -> *mut uruk_error {
    guarded(|| Ok(uruk::prepare_sandbox()?))
}

/// Frees dead code now, one of `URUK_RECLAIM_...`, and waits for that at most so many
/// milliseconds; `done`, which may be null, tells whether it was.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_reclaim(
    jit: *const uruk_jit,
    kind: c_int,
    limit_ms: u64,
    done: *mut c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let jit = unsafe { session(jit)? };
        let kind = match kind {
            URUK_RECLAIM_SWEEP => ReclaimKind::Sweep,
            URUK_RECLAIM_EVACUATE => ReclaimKind::Evacuate,
            other => return Err(unusable("kind", &format!("there is no {other}"))),
        };
        let reclaimed = jit.reclaim(kind, Duration::from_millis(limit_ms));
        // SAFETY: the caller's promise of the pointer.
        if let Some(done) = unsafe { done.as_mut() } {
            *done = c_int::from(reclaimed);
        }
        Ok(())
    })
}

/// Evicts code that was not used for longest until no more than `most` bytes are left; how many
/// bytes went.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_evict_cold(jit: *const uruk_jit, most: u64) -> u64 {
    // SAFETY: the caller's promise of the handle.
    value(0, || Ok(unsafe { session(jit)? }.evict_cold(most)))
}

/// Says that code of the session may run on a stack, as on a fiber's, while no thread is on it. The
/// memory stays readable until `uruk_stack_free`. `stack` is to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_register_stack(
    jit: *const uruk_jit,
    begin: *const c_void,
    size: usize,
    stack: *mut *mut uruk_stack,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, to) = unsafe { (session(jit)?, place(stack, "stack")?) };
        let begin = begin as u64;
        let end = begin.checked_add(size as u64);
        let end = end.ok_or_else(|| unusable("size", "the stack ends behind all memory"))?;
        // SAFETY: the caller's promise of the memory.
        *to = give(uruk_stack(unsafe { jit.register_stack(begin..end)? }));
        Ok(())
    })
}

/// Forgets a stack on which no thread continues; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_stack_free(stack: *mut uruk_stack) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(stack) };
}

/// Goes back to what ran before the latest replacement, at the level of that: after a quiescent one calls wait
/// until no thread runs what goes, as long at most, and nothing changes if that is too short.
/// `names`, which may be null, is given the functions. They are to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_rollback(
    jit: *const uruk_jit,
    names: *mut *mut uruk_names,
) -> *mut uruk_error {
    scrub_stack();
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let back = unsafe { session(jit)? }.rollback()?;
        // SAFETY: the caller's promise of the pointer.
        if let Some(names) = unsafe { names.as_mut() } {
            *names = give(uruk_names::of(back.functions));
        }
        Ok(())
    })
}

/// Goes back as `uruk_jit_rollback` does, at another level: at once, or, if `quiescent` is 1, when no thread
/// runs the code that goes, for which calls wait `wait_ms` milliseconds at most. `names`, which may be null,
/// is given the functions. They are to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_rollback_at(
    jit: *const uruk_jit,
    quiescent: c_int,
    wait_ms: u64,
    names: *mut *mut uruk_names,
) -> *mut uruk_error {
    scrub_stack();
    guarded(|| {
        let level = match quiescent {
            0 => Level::Immediate,
            _ => Level::Quiescent {
                wait: Duration::from_millis(wait_ms),
            },
        };
        // SAFETY: the caller's promise of the handle.
        let back = unsafe { session(jit)? }.rollback_at(level)?;
        // SAFETY: the caller's promise of the pointer.
        if let Some(names) = unsafe { names.as_mut() } {
            *names = give(uruk_names::of(back.functions));
        }
        Ok(())
    })
}

/// Replaces functions of the main dylib by those of files whenever one of the files changes,
/// for the rest of the process; what was replaced is said on standard error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_watch(
    jit: *const uruk_jit,
    files: *const *const c_char,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, files) = unsafe { (session(jit)?, texts(files, count, "files")?) };
        let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
        Ok(jit.watch(&files)?)
    })
}

/// The functions that were called so far, in the order of their first calls; empty unless the
/// session speculates. To be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_first_calls(jit: *const uruk_jit) -> *mut uruk_names {
    value(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let calls = unsafe { session(jit)? }.first_calls();
        Ok(give(uruk_names::of(calls)))
    })
}

/// The contents of the dylibs at this moment, as text for people. To be freed by
/// `uruk_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_dump(jit: *const uruk_jit) -> *mut c_char {
    value(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        Ok(give_text(unsafe { session(jit)? }.dump().to_string()))
    })
}
