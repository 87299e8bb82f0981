//! Link orders of dylibs, aliases, shared libraries, missing symbols.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use uruk::{Alias, Dylib, Flags, GeneratorId, SymbolState, Visibility};

use crate::boundary::{
    Fault, Owned, array, give, guarded, handle, place, take, text, texts, unusable, value,
};
use crate::dylib::{dylib_called, dylib_of, uruk_dylib};
use crate::error::{c_text, uruk_error, uruk_names};

/// A strong definition replaces it until a lookup has found it.
pub const URUK_FLAG_WEAK: c_int = 1;
/// A tentative definition.
pub const URUK_FLAG_COMMON: c_int = 2;
/// Visible to lookups that see exported symbols only.
pub const URUK_FLAG_EXPORTED: c_int = 4;
/// A function; of a unit: one that gets a stub and is made by its first call.
pub const URUK_FLAG_CALLABLE: c_int = 8;
/// A number rather than a place in memory.
pub const URUK_FLAG_ABSOLUTE: c_int = 16;
/// Has no address: stands for the effect of making it.
pub const URUK_FLAG_SIDE_EFFECTS_ONLY: c_int = 32;

/// Lookups see what is exported.
pub const URUK_SEES_EXPORTED: c_int = 0;
/// Lookups see everything, as the dylib itself does.
pub const URUK_SEES_ALL: c_int = 1;

/// The dylib does not define the symbol.
pub const URUK_STATE_NONE: c_int = 0;
/// No lookup has requested it yet.
pub const URUK_STATE_NEVER_SEARCHED: c_int = 1;
/// It is being made.
pub const URUK_STATE_MATERIALIZING: c_int = 2;
/// It has its address, and is not to be touched yet.
pub const URUK_STATE_RESOLVED: c_int = 3;
/// It is in memory, and waits for what it depends on.
pub const URUK_STATE_EMITTED: c_int = 4;
/// It can be used.
pub const URUK_STATE_READY: c_int = 5;
/// It could not be made.
pub const URUK_STATE_FAILED: c_int = 6;

/// A symbol at an address.
#[repr(C)]
pub struct uruk_definition {
    /// Its name.
    pub name: *const c_char,
    /// Where it is; of no meaning where a function only asks for flags.
    pub address: u64,
    /// A sum of `URUK_FLAG_...`.
    pub flags: c_int,
}

/// A name that stands for another one.
#[repr(C)]
pub struct uruk_alias {
    /// The new name.
    pub name: *const c_char,
    /// The target of the alias.
    pub target: *const c_char,
    /// A sum of `URUK_FLAG_...`.
    pub flags: c_int,
}

/// A dylib of a link order or of a lookup.
#[repr(C)]
pub struct uruk_place {
    /// The dylib.
    pub dylib: *const uruk_dylib,
    /// One of `URUK_SEES_...`.
    pub sees: c_int,
}

/// Something that makes what a dylib lacks, to be removed by `uruk_generator_remove`.
pub struct uruk_generator {
    pub(crate) dylib: Dylib,
    pub(crate) id: GeneratorId,
}

/// Says whether a name may be found; 0 is no.
pub type uruk_allowed =
    Option<unsafe extern "C-unwind" fn(context: *mut c_void, name: *const c_char) -> c_int>;

const KNOWN_FLAGS: [(c_int, Flags); 6] = [
    (URUK_FLAG_WEAK, Flags::WEAK),
    (URUK_FLAG_COMMON, Flags::COMMON),
    (URUK_FLAG_EXPORTED, Flags::EXPORTED),
    (URUK_FLAG_CALLABLE, Flags::CALLABLE),
    (URUK_FLAG_ABSOLUTE, Flags::ABSOLUTE),
    (URUK_FLAG_SIDE_EFFECTS_ONLY, Flags::SIDE_EFFECTS_ONLY),
];

/// The flags of a number.
pub(crate) fn flags_of(number: c_int) -> Result<Flags, Fault> {
    let mut left = number;
    let mut flags = Flags::NONE;
    for (bit, flag) in KNOWN_FLAGS {
        if number & bit != 0 {
            flags = flags.with(flag);
            left &= !bit;
        }
    }
    match left {
        0 => Ok(flags),
        _ => Err(unusable("flags", &format!("there is no {left}"))),
    }
}

/// The number of flags.
pub(crate) fn number_of(flags: Flags) -> c_int {
    let set = KNOWN_FLAGS
        .into_iter()
        .filter(|(_, flag)| flags.contains(*flag));
    set.map(|(bit, _)| bit).sum()
}

pub(crate) fn visibility(number: c_int) -> Result<Visibility, Fault> {
    match number {
        URUK_SEES_EXPORTED => Ok(Visibility::Exported),
        URUK_SEES_ALL => Ok(Visibility::All),
        other => Err(unusable("sees", &format!("there is no {other}"))),
    }
}

/// Dylibs with the visibility of each.
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn places_of<'a>(
    places: *const uruk_place,
    count: usize,
) -> Result<Vec<(&'a Dylib, Visibility)>, Fault> {
    // SAFETY: by the caller's promise.
    let places = unsafe { array(places, count, "order")? }.iter();
    places
        .map(|place| {
            // SAFETY: by the caller's promise.
            let dylib = unsafe { dylib_called(place.dylib, "dylib of order")? };
            Ok((dylib, visibility(place.sees)?))
        })
        .collect()
}

/// Aliases of a dylib's session.
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn aliases_of(
    dylib: &Dylib,
    aliases: *const uruk_alias,
    count: usize,
) -> Result<Vec<Alias>, Fault> {
    // SAFETY: by the caller's promise.
    let aliases = unsafe { array(aliases, count, "aliases")? }.iter();
    aliases
        .map(|alias| {
            // SAFETY: by the caller's promise.
            let (name, target) =
                unsafe { (text(alias.name, "name")?, text(alias.target, "target")?) };
            Ok(Alias {
                name: dylib.jit().intern(name),
                target: dylib.jit().intern(target),
                flags: flags_of(alias.flags)?,
            })
        })
        .collect()
}

/// Definitions of a dylib's session.
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn definitions_of(
    dylib: &Dylib,
    definitions: *const uruk_definition,
    count: usize,
) -> Result<Vec<(uruk::Symbol, u64, Flags)>, Fault> {
    // SAFETY: by the caller's promise.
    let definitions = unsafe { array(definitions, count, "definitions")? }.iter();
    definitions
        .map(|one| {
            // SAFETY: by the caller's promise.
            let name = unsafe { text(one.name, "name")? };
            Ok((dylib.jit().intern(name), one.address, flags_of(one.flags)?))
        })
        .collect()
}

/// Whether a name may be found: every name, if there is no callback.
fn asks(allowed: uruk_allowed, owned: Owned) -> impl Fn(&str) -> bool + Send + Sync + 'static {
    move |name| {
        // Captures the whole struct, not only the pointer.
        let owned = &owned;
        let Some(allowed) = allowed else { return true };
        let name = c_text(name);
        // SAFETY: the host's own callback.
        unsafe { allowed(owned.get(), name.as_ptr()) != 0 }
    }
}

/// Stores a generator's handle for the caller, if wanted.
///
/// # Safety
/// The pointer is null or may be written through.
pub(crate) unsafe fn tell(to: *mut *mut uruk_generator, dylib: &Dylib, id: GeneratorId) {
    // SAFETY: by the caller's promise.
    if let Some(to) = unsafe { to.as_mut() } {
        let dylib = dylib.clone();
        *to = give(uruk_generator { dylib, id });
    }
}

/// Has lookups that start in `dylib` go on to `other`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_to_link_order(
    dylib: *const uruk_dylib,
    other: *const uruk_dylib,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, other) = unsafe { (dylib_of(dylib)?, dylib_called(other, "other")?) };
        Ok(dylib.add_to_link_order(other)?)
    })
}

/// Sets where lookups that start in `dylib` go on; the process is searched where
/// `uruk_jit_process` stands.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_set_link_order(
    dylib: *const uruk_dylib,
    order: *const uruk_place,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, order) = unsafe { (dylib_of(dylib)?, places_of(order, count)?) };
        let order: Vec<_> = order
            .into_iter()
            .map(|(dylib, sees)| (dylib.clone(), sees))
            .collect();
        Ok(dylib.set_link_order(&order)?)
    })
}

/// Takes a dylib out of a link order.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_remove_from_link_order(
    dylib: *const uruk_dylib,
    other: *const uruk_dylib,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, other) = unsafe { (dylib_of(dylib)?, dylib_called(other, "other")?) };
        Ok(dylib.remove_from_link_order(other)?)
    })
}

/// Puts `new_one` where `old` was in a link order.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_replace_in_link_order(
    dylib: *const uruk_dylib,
    old: *const uruk_dylib,
    new_one: *const uruk_dylib,
    sees: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, old, new) = unsafe {
            (
                dylib_of(dylib)?,
                dylib_called(old, "old")?,
                dylib_called(new_one, "new_one")?,
            )
        };
        Ok(dylib.replace_in_link_order(old, new, visibility(sees)?)?)
    })
}

/// The names of the dylibs that a lookup goes on to from `dylib`, in order; to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_link_order(dylib: *const uruk_dylib) -> *mut uruk_names {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let order = unsafe { dylib_of(dylib)? }.link_order();
        let names = order.iter().map(|(dylib, _)| dylib.name());
        Ok(give(uruk_names::of(names)))
    })
}

/// Removes a dylib and all that is in it, as `uruk_jit_remove_dylibs` does several.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_remove(
    dylib: *const uruk_dylib,
    forced: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let dylib = unsafe { dylib_of(dylib)? };
        let removal = match forced {
            0 => uruk::Removal::Refused,
            _ => uruk::Removal::Forced,
        };
        // SAFETY: it is not in use, by the caller's promise.
        unsafe { dylib.remove(removal)? };
        Ok(())
    })
}

/// Defines symbols at addresses of the host: all of them, or none.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_define_addresses(
    dylib: *const uruk_dylib,
    definitions: *const uruk_definition,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises, of the pointers and of what is there.
        unsafe {
            let dylib = dylib_of(dylib)?;
            let definitions = definitions_of(dylib, definitions, count)?;
            Ok(dylib.define_addresses(definitions)?)
        }
    })
}

/// Defines names for symbols of `source`, which may be `dylib` itself; `sees` says which of its
/// symbols are found.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_reexport(
    dylib: *const uruk_dylib,
    source: *const uruk_dylib,
    sees: c_int,
    aliases: *const uruk_alias,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, source) = unsafe { (dylib_of(dylib)?, dylib_called(source, "source")?) };
        // SAFETY: the caller's promise of the array.
        let aliases = unsafe { aliases_of(dylib, aliases, count)? };
        Ok(dylib.reexport(source, visibility(sees)?, aliases)?)
    })
}

/// Re-exports whatever `source` has, where `allowed` says so. `drop` is called once with `context`:
/// when it is not asked any more, or at once after an error. `generator`, which may be null, is
/// given a handle to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_reexport_all(
    dylib: *const uruk_dylib,
    source: *const uruk_dylib,
    sees: c_int,
    allowed: uruk_allowed,
    context: *mut c_void,
    drop: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
    generator: *mut *mut uruk_generator,
) -> *mut uruk_error {
    guarded(|| {
        let owned = Owned::new(context, drop);
        // SAFETY: the caller's promises.
        let (dylib, source) = unsafe { (dylib_of(dylib)?, dylib_called(source, "source")?) };
        let id = dylib.reexport_all(source, visibility(sees)?, asks(allowed, owned))?;
        // SAFETY: the caller's promise of the pointer.
        unsafe { tell(generator, dylib, id) };
        Ok(())
    })
}

/// Has a dylib find what a shared library exports, where `allowed` says so; with no path, what the
/// process exports and the executable defines. `drop` is called once with `context`: when it is
/// not asked any more, or at once after an error. `generator`, which may be null, is given a handle to be
/// freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_add_library(
    dylib: *const uruk_dylib,
    path: *const c_char,
    allowed: uruk_allowed,
    context: *mut c_void,
    drop: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
    generator: *mut *mut uruk_generator,
) -> *mut uruk_error {
    guarded(|| {
        let allowed = asks(allowed, Owned::new(context, drop));
        // SAFETY: the caller's promise of the handle.
        let dylib = unsafe { dylib_of(dylib)? };
        let id = match path.is_null() {
            true => dylib.add_process_symbols(allowed)?,
            // SAFETY: the caller's promise of the pointer.
            false => dylib.add_library(Path::new(unsafe { text(path, "path")? }), allowed)?,
        };
        // SAFETY: the caller's promise of the pointer.
        unsafe { tell(generator, dylib, id) };
        Ok(())
    })
}

/// Removes a generator from its dylib; 1 if it was there. The handle is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_remove(generator: *const uruk_generator) -> c_int {
    value(0, || {
        // SAFETY: the caller's promise of the handle.
        let generator = unsafe { handle(generator, "generator")? };
        Ok(c_int::from(generator.dylib.remove_generator(generator.id)))
    })
}

/// Frees a handle of a generator, which goes on to be asked; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_generator_free(generator: *mut uruk_generator) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(generator) };
}

/// Whether additions may need symbols that are not defined yet (1) or not (0, the default).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_allow_missing(
    dylib: *const uruk_dylib,
    allowed: c_int,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        unsafe { dylib_of(dylib)? }.allow_missing(allowed != 0);
        Ok(())
    })
}

/// The symbols that additions need and that are not defined; to be freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_unresolved(
    dylib: *const uruk_dylib,
    names: *mut *mut uruk_names,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, to) = unsafe { (dylib_of(dylib)?, place(names, "names")?) };
        let missing = dylib.unresolved()?.into_iter();
        *to = give(uruk_names::of(missing.map(|missing| missing.symbol)));
        Ok(())
    })
}

/// Removes symbols, all of them or none.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_undefine(
    dylib: *const uruk_dylib,
    names: *const *const c_char,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, names) = unsafe { (dylib_of(dylib)?, texts(names, count, "names")?) };
        let symbols: Vec<_> = names.iter().map(|name| dylib.jit().intern(name)).collect();
        // SAFETY: they are not in use, by the caller's promise.
        unsafe { dylib.undefine(&symbols)? };
        Ok(())
    })
}

/// How far a symbol of this dylib has come: one of `URUK_STATE_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_state(dylib: *const uruk_dylib, name: *const c_char) -> c_int {
    value(URUK_STATE_NONE, || {
        // SAFETY: the caller's promises.
        let (dylib, name) = unsafe { (dylib_of(dylib)?, text(name, "name")?) };
        Ok(match dylib.state_of(dylib.jit().intern(name)) {
            None => URUK_STATE_NONE,
            Some(SymbolState::NeverSearched) => URUK_STATE_NEVER_SEARCHED,
            Some(SymbolState::Materializing) => URUK_STATE_MATERIALIZING,
            Some(SymbolState::Resolved) => URUK_STATE_RESOLVED,
            Some(SymbolState::Emitted) => URUK_STATE_EMITTED,
            Some(SymbolState::Ready) => URUK_STATE_READY,
            Some(SymbolState::Failed) => URUK_STATE_FAILED,
        })
    })
}
