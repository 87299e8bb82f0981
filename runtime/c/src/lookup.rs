//! Lookups of many names, synchronous or asynchronous.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use uruk::{Error, Jit, Lookup, LookupKind, LookupResult, Required, Symbol};

use crate::boundary::{Context, Fault, array, guarded, place, sized, text, unusable, unused};
use crate::error::uruk_error;
use crate::names::{number_of, places_of, uruk_definition, uruk_place};
use crate::session::{session, uruk_jit};

/// As one symbol of linked code needs another.
pub const URUK_LOOKUP_STATIC: c_int = 0;
/// As `dlsym` does.
pub const URUK_LOOKUP_DLSYM: c_int = 1;

/// The names to look up, and where to search. A field of zero has its default; `size` is that of
/// this struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_lookup {
    /// `sizeof(uruk_lookup)`.
    pub size: usize,
    /// The dylibs to search, in this order.
    pub order: *const uruk_place,
    /// How many.
    pub order_count: usize,
    /// The names. Those that are null are passed over, and have the address 0.
    pub names: *const *const c_char,
    /// How many.
    pub name_count: usize,
    /// For each name, 1 if a missing definition is no error; null if it is one for all.
    pub weak: *const c_char,
    /// 1: an address is enough, what is there need not be ready.
    pub resolved: c_int,
    /// 1: it waits until what is missing is defined.
    pub wait_for_missing: c_int,
    /// One of `URUK_LOOKUP_...`, told to generators.
    pub kind: c_int,
    /// Must be 0.
    pub reserved: c_int,
}

const NOTHING: uruk_lookup = uruk_lookup {
    size: size_of::<uruk_lookup>(),
    order: ptr::null(),
    order_count: 0,
    names: ptr::null(),
    name_count: 0,
    weak: ptr::null(),
    resolved: 0,
    wait_for_missing: 0,
    kind: URUK_LOOKUP_STATIC,
    reserved: 0,
};

/// A lookup and the symbols of its names, in their order.
///
/// # Safety
/// As for all pointers of the interface.
unsafe fn lookup_of(
    jit: &Jit,
    asked: *const uruk_lookup,
) -> Result<(Lookup, Vec<Option<Symbol>>), Fault> {
    // SAFETY: by the caller's promise; the struct is of integers and pointers.
    let asked = unsafe { sized(asked, NOTHING, "lookup")? };
    unused(asked.reserved)?;
    // SAFETY: by the caller's promise.
    let (order, names, weak) = unsafe {
        let weak = match asked.weak.is_null() {
            true => &[],
            false => array(asked.weak, asked.name_count, "weak")?,
        };
        let names = array(asked.names, asked.name_count, "names")?;
        (places_of(asked.order, asked.order_count)?, names, weak)
    };
    let mut lookup = Lookup::new(order);
    let mut symbols = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        if name.is_null() {
            symbols.push(None);
            continue;
        }
        // SAFETY: by the caller's promise.
        let symbol = jit.intern(unsafe { text(*name, "name")? });
        lookup = match weak.get(index) {
            None | Some(0) => lookup.symbol(symbol),
            Some(_) => lookup.weak(symbol),
        };
        symbols.push(Some(symbol));
    }
    lookup = match asked.kind {
        URUK_LOOKUP_STATIC => lookup.kind(LookupKind::Static),
        URUK_LOOKUP_DLSYM => lookup.kind(LookupKind::Dlsym),
        other => return Err(unusable("kind", &format!("there is no {other}"))),
    };
    if asked.resolved != 0 {
        lookup = lookup.at(Required::Resolved);
    }
    if asked.wait_for_missing != 0 {
        lookup = lookup.wait_for_missing();
    }
    Ok((lookup, symbols))
}

fn addresses(found: &LookupResult, symbols: &[Option<Symbol>]) -> Vec<u64> {
    let address = |symbol: &Option<Symbol>| symbol.and_then(|symbol| found.address(symbol));
    symbols
        .iter()
        .map(|symbol| address(symbol).unwrap_or(0))
        .collect()
}

/// Looks names up in one step, and waits for the answer: `addresses` has room for one of each; that
/// of a weak name without a definition is 0.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_lookup(
    jit: *const uruk_jit,
    lookup: *const uruk_lookup,
    addresses: *mut u64,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let jit = unsafe { session(jit)? };
        // SAFETY: the caller's promises.
        let (lookup, symbols) = unsafe { lookup_of(jit, lookup)? };
        if addresses.is_null() && !symbols.is_empty() {
            return Err(unusable("addresses", "a null pointer"));
        }
        let found = jit.lookup_all(lookup)?;
        for (index, address) in self::addresses(&found, &symbols).into_iter().enumerate() {
            // SAFETY: there is room for as many as there are names.
            unsafe { addresses.add(index).write(address) };
        }
        Ok(())
    })
}

/// Looks names up, and calls `done` once: with the addresses in the order of the names, or with an
/// error, which it frees. In this thread if the answer is there already, else in the thread that
/// makes it so. It is not called where this answers an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_lookup_async(
    jit: *const uruk_jit,
    lookup: *const uruk_lookup,
    done: Option<
        unsafe extern "C-unwind" fn(
            context: *mut c_void,
            error: *mut uruk_error,
            addresses: *const u64,
            count: usize,
        ),
    >,
    context: *mut c_void,
) -> *mut uruk_error {
    guarded(|| {
        let done = done.ok_or_else(|| unusable("done", "a null pointer"))?;
        // SAFETY: the caller's promises.
        let jit = unsafe { session(jit)? };
        // SAFETY: the caller's promises.
        let (lookup, symbols) = unsafe { lookup_of(jit, lookup)? };
        let context = Context(context);
        jit.lookup_async(lookup, move |found: Result<LookupResult, Error>| {
            let context = &context;
            let (error, found) = match found {
                Ok(found) => (ptr::null_mut(), addresses(&found, &symbols)),
                Err(error) => (Box::into_raw(Fault::from(error)), Vec::new()),
            };
            // SAFETY: the host's own callback, called once.
            unsafe { done(context.0, error, found.as_ptr(), found.len()) };
        });
        Ok(())
    })
}

/// The flags of names: `found` has room for one of each; the name of one without a definition is
/// null there. Nothing is materialized.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_lookup_flags(
    jit: *const uruk_jit,
    lookup: *const uruk_lookup,
    found: *mut uruk_definition,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let jit = unsafe { session(jit)? };
        // SAFETY: the caller's promises.
        let (wanted, symbols) = unsafe { lookup_of(jit, lookup)? };
        let flags = jit.lookup_flags(wanted)?;
        // SAFETY: it was read above.
        let names = unsafe { sized(lookup, NOTHING, "lookup")? }.names;
        for (index, symbol) in symbols.iter().enumerate() {
            let known = flags.iter().find(|(name, _)| Some(*name) == *symbol);
            // SAFETY: there is room for as many as there are names, which were read above.
            unsafe {
                *place(found.add(index), "found")? = uruk_definition {
                    name: match known {
                        Some(_) => *names.add(index),
                        None => ptr::null(),
                    },
                    address: 0,
                    flags: known.map_or(0, |(_, flags)| number_of(*flags)),
                };
            }
        }
        Ok(())
    })
}
