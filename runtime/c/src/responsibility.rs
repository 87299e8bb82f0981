//! Responsibilities: the symbols that a unit must define, and their definitions.
//!
//! A responsibility is used by one thread at a time. It ends in one of the functions documented to
//! free it, whatever they return.

use std::ffi::{c_char, c_void};
use std::ptr;

use uruk::{DependenceGroup, DylibId, Responsibility, SessionError, Symbol};

use crate::boundary::{
    Fault, Owned, array, give, guarded, place, take, text, texts, unusable, value,
};
use crate::dylib::{dylib_called, uruk_dylib};
use crate::error::{uruk_error, uruk_names};
use crate::names::{definitions_of, flags_of, uruk_definition};
use crate::tracker::uruk_tracker;
use crate::unit::{owned_of, unit_of, uruk_unit};

/// The obligation to define what was asked for.
pub struct uruk_responsibility(pub(crate) Responsibility);

/// Symbols of a responsibility with what each of them uses.
#[repr(C)]
pub struct uruk_dependence_group {
    /// The symbols.
    pub symbols: *const *const c_char,
    /// How many.
    pub symbol_count: usize,
    /// The dylibs of what they use.
    pub dylibs: *const *const uruk_dylib,
    /// The names of what they use.
    pub dependences: *const *const c_char,
    /// How many.
    pub dependence_count: usize,
}

/// The responsibility behind a handle.
///
/// # Safety
/// As for all handles; no other thread uses it during the call.
unsafe fn own<'a>(
    responsibility: *mut uruk_responsibility,
) -> Result<&'a mut Responsibility, Fault> {
    // SAFETY: by the caller's promise: handles are made of values.
    unsafe { responsibility.as_mut() }
        .map(|responsibility| &mut responsibility.0)
        .ok_or_else(|| unusable("responsibility", "a null pointer"))
}

/// Takes the responsibility out of its handle, and frees the handle.
///
/// # Safety
/// As for all handles; it is not used any more.
unsafe fn ended(responsibility: *mut uruk_responsibility) -> Result<Responsibility, Fault> {
    if responsibility.is_null() {
        return Err(unusable("responsibility", "a null pointer"));
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { Box::from_raw(responsibility) }.0)
}

/// The symbols with their addresses.
///
/// # Safety
/// As for all pointers of the interface.
unsafe fn addresses_of(
    responsibility: &Responsibility,
    definitions: *const uruk_definition,
    count: usize,
) -> Result<Vec<(Symbol, u64)>, Fault> {
    // SAFETY: by the caller's promise.
    let definitions = unsafe { definitions_of(&responsibility.dylib(), definitions, count)? };
    Ok(definitions
        .into_iter()
        .map(|(symbol, address, _)| (symbol, address))
        .collect())
}

/// The groups of dependences.
///
/// # Safety
/// As for all pointers of the interface.
unsafe fn groups_of(
    responsibility: &Responsibility,
    groups: *const uruk_dependence_group,
    count: usize,
) -> Result<Vec<DependenceGroup>, Fault> {
    let jit = responsibility.jit();
    // SAFETY: by the caller's promise.
    let groups = unsafe { array(groups, count, "groups")? }.iter();
    groups
        .map(|group| {
            // SAFETY: by the caller's promise.
            let (symbols, dylibs, names) = unsafe {
                let count = group.dependence_count;
                let symbols = texts(group.symbols, group.symbol_count, "symbols")?;
                let dylibs = array(group.dylibs, count, "dylibs")?;
                (
                    symbols,
                    dylibs,
                    texts(group.dependences, count, "dependences")?,
                )
            };
            let dependences = dylibs.iter().zip(names).map(|(dylib, name)| {
                // SAFETY: by the caller's promise.
                let dylib = unsafe { dylib_called(*dylib, "dylib of dylibs")? };
                // The number of another session's symbol has another meaning in this session.
                if dylib.jit() != jit {
                    let dylib = dylib.name().into();
                    return Err(SessionError::ForeignDylib { dylib }.into());
                }
                Ok((dylib.id(), jit.intern(name)))
            });
            Ok(DependenceGroup {
                symbols: symbols.into_iter().map(|name| jit.intern(name)).collect(),
                dependences: dependences.collect::<Result<Vec<(DylibId, Symbol)>, Fault>>()?,
            })
        })
        .collect()
}

/// The dylib that the symbols are in, to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_dylib(
    responsibility: *mut uruk_responsibility,
) -> *mut uruk_dylib {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        Ok(give(uruk_dylib(unsafe { own(responsibility)? }.dylib())))
    })
}

/// The names of the symbols, less those that were passed on; to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_symbols(
    responsibility: *mut uruk_responsibility,
) -> *mut uruk_names {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let own = unsafe { own(responsibility)? };
        let names = own.symbols().iter();
        let names = names.map(|(symbol, _)| own.jit().name_of(*symbol));
        Ok(give(uruk_names::of(names)))
    })
}

/// The names for which lookups wait now; to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_requested(
    responsibility: *mut uruk_responsibility,
) -> *mut uruk_names {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let own = unsafe { own(responsibility)? };
        let names = own.requested().into_iter();
        Ok(give(uruk_names::of(
            names.map(|symbol| own.jit().name_of(symbol)),
        )))
    })
}

/// The tracker that the symbols are under now, to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_tracker(
    responsibility: *mut uruk_responsibility,
    tracker: *mut *mut uruk_tracker,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (own, to) = unsafe { (own(responsibility)?, place(tracker, "tracker")?) };
        *to = give(uruk_tracker(own.tracker()?));
        Ok(())
    })
}

/// Gives symbols their addresses; what is there need not be ready before
/// `uruk_responsibility_emit`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_resolve(
    responsibility: *mut uruk_responsibility,
    definitions: *const uruk_definition,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let own = unsafe { own(responsibility)? };
        // SAFETY: the caller's promise of the array.
        let addresses = unsafe { addresses_of(own, definitions, count)? };
        Ok(own.resolve(&addresses)?)
    })
}

/// Ends the responsibility: all symbols are in memory. Each becomes ready as soon as what its
/// groups name is. Frees `responsibility`, also after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_emit(
    responsibility: *mut uruk_responsibility,
    groups: *const uruk_dependence_group,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let ended = unsafe { ended(responsibility)? };
        // SAFETY: the caller's promise of the array.
        let groups = unsafe { groups_of(&ended, groups, count)? };
        Ok(ended.emit(&groups)?)
    })
}

/// Ends the responsibility: resolves and emits in one step. Frees `responsibility`, also after an
/// error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_publish(
    responsibility: *mut uruk_responsibility,
    definitions: *const uruk_definition,
    count: usize,
    groups: *const uruk_dependence_group,
    group_count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let ended = unsafe { ended(responsibility)? };
        // SAFETY: the caller's promise of the arrays.
        let (addresses, groups) = unsafe {
            let addresses = addresses_of(&ended, definitions, count)?;
            (addresses, groups_of(&ended, groups, group_count)?)
        };
        Ok(ended.publish(&addresses, &groups)?)
    })
}

/// Ends the responsibility: links an ELF object, which is copied and defines the symbols. Frees
/// `responsibility`, also after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_link(
    responsibility: *mut uruk_responsibility,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let ended = unsafe { ended(responsibility)? };
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

/// Takes on more symbols; `claimed`, which may be null, is given the names of those that were
/// taken, to be freed: weak ones that are defined elsewhere are not.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_claim(
    responsibility: *mut uruk_responsibility,
    definitions: *const uruk_definition,
    count: usize,
    claimed: *mut *mut uruk_names,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (own, more) = unsafe {
            (
                own(responsibility)?,
                array(definitions, count, "definitions")?,
            )
        };
        let more = more.iter().map(|one| {
            // SAFETY: the caller's promise of the text.
            let name = unsafe { text(one.name, "name")? };
            Ok((own.jit().intern(name), flags_of(one.flags)?))
        });
        let more: Vec<_> = more.collect::<Result<_, Fault>>()?;
        let taken = own.claim(&more)?;
        // SAFETY: the caller's promise of the pointer.
        if let Some(claimed) = unsafe { claimed.as_mut() } {
            let names = taken.into_iter().map(|symbol| own.jit().name_of(symbol));
            *claimed = give(uruk_names::of(names));
        }
        Ok(())
    })
}

/// Splits some of the symbols off into a responsibility of their own, to be ended, too. `delegated`
/// is freed by what ends it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_delegate(
    responsibility: *mut uruk_responsibility,
    symbols: *const *const c_char,
    count: usize,
    delegated: *mut *mut uruk_responsibility,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (own, names, to) = unsafe {
            let names = texts(symbols, count, "symbols")?;
            (own(responsibility)?, names, place(delegated, "delegated")?)
        };
        let symbols: Vec<_> = names.iter().map(|name| own.jit().intern(name)).collect();
        *to = give(uruk_responsibility(own.delegate(&symbols)?));
        Ok(())
    })
}

/// Gives symbols back to another unit, which is asked when they are.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_replace(
    responsibility: *mut uruk_responsibility,
    unit: *const uruk_unit,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the pointer.
        let owned = unsafe { owned_of(unit) };
        // SAFETY: the caller's promise of the handle.
        let own = unsafe { own(responsibility)? };
        // SAFETY: the caller's promise of the pointer.
        let unit = unsafe { unit_of(&own.dylib(), unit, owned)? };
        Ok(own.replace(unit)?)
    })
}

/// Has `release` called with `context` once the definitions are removed. It is called once, at once
/// after an error, too.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_attach(
    responsibility: *mut uruk_responsibility,
    context: *mut c_void,
    release: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
) -> *mut uruk_error {
    guarded(|| {
        let owned = Owned::new(context, release);
        // SAFETY: the caller's promise of the handle.
        let own = unsafe { own(responsibility)? };
        Ok(own.attach(move || drop(owned))?)
    })
}

/// Ends the responsibility: the symbols cannot be made, for the reason of the text. With a unit (or
/// null), they are tried again by it when they are next asked for. Frees `responsibility`, also
/// after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_fail(
    responsibility: *mut uruk_responsibility,
    message: *const c_char,
    again: *const uruk_unit,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the pointer.
        let owned = unsafe { owned_of(again) };
        // SAFETY: the caller's promise of the handle.
        let ended = unsafe { ended(responsibility)? };
        // SAFETY: the caller's promise of the pointer.
        let message = unsafe { text(message, "message") }.unwrap_or("no reason was given");
        let error = SessionError::unit("unit", message);
        if again.is_null() {
            ended.fail(error);
            return Ok(());
        }
        // SAFETY: the caller's promise of the pointer.
        let unit = unsafe { unit_of(&ended.dylib(), again, owned)? };
        Ok(ended.fail_retryable(error, unit)?)
    })
}

/// Ends the responsibility without a word, which is a failure, and frees it; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_responsibility_free(responsibility: *mut uruk_responsibility) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(responsibility) };
}
