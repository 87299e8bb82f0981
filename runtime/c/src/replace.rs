//! New code for running functions.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use uruk::{Level, Replaced, Replacement};

use crate::boundary::{
    Context, Fault, array, give, guarded, handle, scrub_stack, sized, take, text, unusable, value,
};
use crate::dylib::{dylib_of, uruk_dylib};
use crate::error::{uruk_error, uruk_names};

/// The input is IR text.
pub const URUK_INPUT_IR: c_int = 0;
/// The input is bitcode.
pub const URUK_INPUT_BITCODE: c_int = 1;
/// The input is an ELF object.
pub const URUK_INPUT_OBJECT: c_int = 2;
/// The input is a file, whose path `data` is: bitcode, IR text or an object.
pub const URUK_INPUT_FILE: c_int = 3;

/// A variable that changes its type: `fill` computes its new bytes from the old ones, while no
/// thread runs code of the replaced set. It must not call the session.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_migration {
    /// The variable.
    pub global: *const c_char,
    /// Called once.
    pub fill: Option<
        unsafe extern "C-unwind" fn(
            context: *mut c_void,
            old: *const c_void,
            old_size: usize,
            new_one: *mut c_void,
            new_size: usize,
        ),
    >,
}

/// The functions to replace, and how. A field of zero has its default; `size` is that of this
/// struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_replacement {
    /// `sizeof(uruk_replacement)`.
    pub size: usize,
    /// The name of the input in messages; a file's path if null.
    pub name: *const c_char,
    /// The input.
    pub data: *const c_void,
    /// Its bytes; 0 for text that ends with a zero byte.
    pub data_size: usize,
    /// One of `URUK_INPUT_...`.
    pub input: c_int,
    /// 1: at an instant at which no thread runs old code; calls wait for it.
    pub quiescent: c_int,
    /// How long they wait at most, in milliseconds; nothing changes if that is too short.
    pub wait_ms: u64,
    /// 1: functions may change their signature.
    pub allow_signatures: c_int,
    /// 1: functions of objects may be replaced in part.
    pub allow_parts: c_int,
    /// 1: constructors of the input are run.
    pub run_constructors: c_int,
    /// How many variables change their type.
    pub migration_count: c_int,
    /// Those.
    pub migrations: *const uruk_migration,
    /// The host's own, for `fill`. It need not live longer than the call.
    pub context: *mut c_void,
    /// 1: who is in a loop goes on in the new body, where that has a loop with variables of the
    /// same names and types; `uruk_replaced_loops` says who cannot.
    pub osr: c_int,
}

/// The result of a replacement.
pub struct uruk_replaced(Replaced);

/// Functions whose code was exchanged.
pub const URUK_REPLACED_FUNCTIONS: c_int = 0;
/// Functions that are new.
pub const URUK_REPLACED_ADDED: c_int = 1;
/// Functions that were compiled again, because they relied on a body that was replaced.
pub const URUK_REPLACED_DEPENDENTS: c_int = 2;
/// Variables that are new.
pub const URUK_REPLACED_GLOBALS_ADDED: c_int = 3;
/// Variables that exist and keep their contents.
pub const URUK_REPLACED_GLOBALS_KEPT: c_int = 4;
/// Local variables of an object, which begin anew.
pub const URUK_REPLACED_LOCALS_NEW: c_int = 5;
/// Constructors of the input that were not run.
pub const URUK_REPLACED_CONSTRUCTORS_SKIPPED: c_int = 6;

const NOTHING: uruk_replacement = uruk_replacement {
    size: size_of::<uruk_replacement>(),
    name: ptr::null(),
    data: ptr::null(),
    data_size: 0,
    input: URUK_INPUT_IR,
    quiescent: 0,
    wait_ms: 0,
    allow_signatures: 0,
    allow_parts: 0,
    run_constructors: 0,
    migration_count: 0,
    migrations: ptr::null(),
    context: ptr::null_mut(),
    osr: 0,
};

/// The library's replacement.
///
/// # Safety
/// As for all pointers of the interface.
unsafe fn replacement(asked: &uruk_replacement) -> Result<Replacement, Fault> {
    let data = asked.data.cast::<c_char>();
    // SAFETY: by the caller's promise.
    let bytes = || unsafe { array(asked.data.cast::<u8>(), asked.data_size, "data") };
    let written = || match asked.data_size {
        // SAFETY: by the caller's promise.
        0 => unsafe { text(data, "data") },
        _ => std::str::from_utf8(bytes()?)
            .map_err(|cause| unusable("data", &format!("not UTF-8: {cause}"))),
    };
    let name = match asked.name.is_null() && asked.input == URUK_INPUT_FILE {
        true => "",
        // SAFETY: by the caller's promise.
        false => unsafe { text(asked.name, "name")? },
    };
    let new = match asked.input {
        URUK_INPUT_IR => Replacement::ir(name, written()?),
        URUK_INPUT_BITCODE => Replacement::bitcode(name, bytes()?),
        URUK_INPUT_OBJECT => Replacement::object(name, bytes()?),
        URUK_INPUT_FILE => Replacement::file(Path::new(written()?))?,
        other => return Err(unusable("input", &format!("there is no {other}"))),
    };
    let level = match asked.quiescent {
        0 => Level::Immediate,
        _ => Level::Quiescent {
            wait: Duration::from_millis(asked.wait_ms),
        },
    };
    let new = new
        .level(level)
        .allow_signatures(asked.allow_signatures != 0)
        .allow_parts(asked.allow_parts != 0)
        .osr(asked.osr != 0);
    let new = match asked.run_constructors {
        0 => new,
        // SAFETY: the caller's promise of the code.
        _ => unsafe { new.run_constructors() },
    };
    // SAFETY: by the caller's promise.
    unsafe { with_migrations(new, asked) }
}

/// # Safety
/// As for all pointers of the interface.
unsafe fn with_migrations(
    mut new: Replacement,
    asked: &uruk_replacement,
) -> Result<Replacement, Fault> {
    let count = usize::try_from(asked.migration_count)
        .map_err(|_| unusable("migration_count", "less than none"))?;
    // SAFETY: by the caller's promise.
    for migration in unsafe { array(asked.migrations, count, "migrations")? } {
        // SAFETY: by the caller's promise.
        let global = unsafe { text(migration.global, "global")? };
        let fill = migration
            .fill
            .ok_or_else(|| unusable("fill", "a null pointer"))?;
        let context = Context(asked.context);
        new = new.migrate(global, move |old, old_size, to, to_size| {
            let context = &context;
            // SAFETY: the host's own callback, with the library's bytes.
            unsafe { fill(context.0, old.cast(), old_size, to.cast(), to_size) };
        });
    }
    Ok(new)
}

/// Exchanges the code of functions of a dylib while they run: all that the input defines, or
/// nothing. Those that do not exist are added; variables that exist keep their contents.
/// `replaced`, which may be null, is given what was done, to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_replace(
    dylib: *const uruk_dylib,
    replacement: *const uruk_replacement,
    replaced: *mut *mut uruk_replaced,
) -> *mut uruk_error {
    scrub_stack();
    // SAFETY: the caller's promises.
    unsafe { replace(dylib, replacement, replaced) }
}

/// Runs in frames on stack memory that was scrubbed.
///
/// # Safety
/// As for all pointers of the interface.
#[inline(never)]
unsafe fn replace(
    dylib: *const uruk_dylib,
    replacement: *const uruk_replacement,
    replaced: *mut *mut uruk_replaced,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises; the struct is of integers, pointers and nullable
        // functions.
        let (dylib, asked) = unsafe {
            (
                dylib_of(dylib)?,
                sized(replacement, NOTHING, "replacement")?,
            )
        };
        // SAFETY: the caller's promises.
        let new = unsafe { self::replacement(&asked)? };
        let done = dylib.replace(new)?;
        // SAFETY: the caller's promise of the pointer.
        if let Some(replaced) = unsafe { replaced.as_mut() } {
            *replaced = give(uruk_replaced(done));
        }
        Ok(())
    })
}

/// As `uruk_dylib_replace`, of IR text and with all defaults.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_replace_ir(
    dylib: *const uruk_dylib,
    name: *const c_char,
    ir: *const c_char,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, ir) = unsafe { (dylib_of(dylib)?, text(name, "name")?, text(ir, "ir")?) };
        dylib.replace(Replacement::ir(name, ir))?;
        Ok(())
    })
}

/// The names of one kind, of `URUK_REPLACED_...`; to be freed. Null if there is no such kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_replaced_names(
    replaced: *const uruk_replaced,
    kind: c_int,
) -> *mut uruk_names {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let replaced = &unsafe { handle(replaced, "replaced")? }.0;
        let names = match kind {
            URUK_REPLACED_FUNCTIONS => &replaced.functions,
            URUK_REPLACED_ADDED => &replaced.added,
            URUK_REPLACED_DEPENDENTS => &replaced.dependents,
            URUK_REPLACED_GLOBALS_ADDED => &replaced.globals_added,
            URUK_REPLACED_GLOBALS_KEPT => &replaced.globals_kept,
            URUK_REPLACED_LOCALS_NEW => &replaced.locals_new,
            URUK_REPLACED_CONSTRUCTORS_SKIPPED => &replaced.constructors_skipped,
            other => return Err(unusable("kind", &format!("there is no {other}"))),
        };
        Ok(give(uruk_names::of(names.iter().map(String::as_str))))
    })
}

/// How long no call of a member could begin, in nanoseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_replaced_closed_ns(replaced: *const uruk_replaced) -> u64 {
    value(0, || {
        // SAFETY: the caller's promise of the handle.
        let closed = unsafe { handle(replaced, "replaced")? }.0.closed;
        Ok(u64::try_from(closed.as_nanos()).unwrap_or(u64::MAX))
    })
}

/// Goes back to what ran before this replacement, which must be the latest, at its level
/// (`uruk_jit_rollback`).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_replaced_rollback(replaced: *const uruk_replaced) -> *mut uruk_error {
    scrub_stack();
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        unsafe { handle(replaced, "replaced")? }.0.rollback()?;
        Ok(())
    })
}

/// Which threads still run, or will return into, code that this replaced: a line for each; to
/// be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_replaced_activations(
    replaced: *const uruk_replaced,
    names: *mut *mut uruk_names,
) -> *mut uruk_error {
    scrub_stack();
    guarded(|| {
        // SAFETY: the caller's promises.
        let (replaced, to) = unsafe {
            let to = crate::boundary::place(names, "names")?;
            (handle(replaced, "replaced")?, to)
        };
        let activations = replaced.0.activations()?;
        let lines = activations.iter().map(|activation| activation.to_string());
        *to = give(uruk_names::of(lines));
        Ok(())
    })
}

/// The loops that threads were in, if they were to change (`osr`), and the result of each: a line
/// for each; to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_replaced_loops(
    replaced: *const uruk_replaced,
    names: *mut *mut uruk_names,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (replaced, to) = unsafe {
            let to = crate::boundary::place(names, "names")?;
            (handle(replaced, "replaced")?, to)
        };
        let lines = replaced.0.loops.iter().map(|it| it.to_string());
        *to = give(uruk_names::of(lines));
        Ok(())
    })
}

/// Frees what a replacement did, which stays done; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_replaced_free(replaced: *mut uruk_replaced) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(replaced) };
}
