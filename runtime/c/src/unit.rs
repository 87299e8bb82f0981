//! Units: definitions that the host makes on demand.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use uruk::{Dylib, Flags, Interface, ReoptimizeRequest, Reoptimizer, Responsibility, Symbol, Unit};

use crate::boundary::{Fault, Owned, give, guarded, handle, owned_by, sized, text, unusable};
use crate::dylib::{dylib_of, uruk_dylib};
use crate::error::{c_text, uruk_error};
use crate::improve::uruk_reoptimize_request;
use crate::names::{definitions_of, uruk_definition};
use crate::responsibility::uruk_responsibility;
use crate::tracker::uruk_tracker;

/// Something that defines symbols when they are asked for. A field of zero is as by default;
/// `size` is that of this struct.
///
/// A symbol that is flagged callable gets a stub: its name is ready at once, and its first call
/// calls `materialize`; others are materialized by their first lookup.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_unit {
    /// `sizeof(uruk_unit)`.
    pub size: usize,
    /// For messages.
    pub name: *const c_char,
    /// The symbols with their flags.
    pub symbols: *const uruk_definition,
    /// How many.
    pub symbol_count: usize,
    /// That of them which stands for running initializers, or null.
    pub init: *const c_char,
    /// Defines what it is responsible for, now or later: it has to end the responsibility. Called
    /// at most once.
    pub materialize: Option<
        unsafe extern "C-unwind" fn(context: *mut c_void, responsibility: *mut uruk_responsibility),
    >,
    /// Another definition of a symbol was chosen; or null.
    pub discard: Option<unsafe extern "C-unwind" fn(context: *mut c_void, symbol: *const c_char)>,
    /// Makes better code of a function that is hot, now or later: it has to end the improvement.
    /// Null if there is none.
    pub improve: Option<
        unsafe extern "C-unwind" fn(
            context: *mut c_void,
            improvement: *mut uruk_reoptimize_request,
        ),
    >,
    /// The host's own.
    pub context: *mut c_void,
    /// Called once, when nothing of the above is called any more: at once where the unit was not
    /// taken, whichever argument was in the way (but for a `size` that cannot be).
    pub drop: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
}

const NOTHING: uruk_unit = uruk_unit {
    size: size_of::<uruk_unit>(),
    name: ptr::null(),
    symbols: ptr::null(),
    symbol_count: 0,
    init: ptr::null(),
    materialize: None,
    discard: None,
    improve: None,
    context: ptr::null_mut(),
    drop: None,
};

/// A unit of the host's.
pub(crate) struct HostUnit {
    unit: uruk_unit,
    name: String,
    symbols: Vec<(Symbol, Flags)>,
    init: Option<Symbol>,
    owned: Arc<Owned>,
}

// SAFETY: the texts and arrays that the struct points to are not read any more; the callbacks may
// be called on any thread, as their host is required to allow.
unsafe impl Send for HostUnit {}

struct HostImprover {
    improve: unsafe extern "C-unwind" fn(*mut c_void, *mut uruk_reoptimize_request),
    owned: Arc<Owned>,
}

impl Reoptimizer for HostImprover {
    fn improve(&self, improvement: ReoptimizeRequest) {
        let improvement = give(uruk_reoptimize_request(improvement));
        // SAFETY: the host's own callback, which takes the request.
        unsafe { (self.improve)(self.owned.get(), improvement) };
    }
}

impl Unit for HostUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> Interface {
        let mut interface: Interface = self.symbols.iter().copied().collect();
        interface.init = self.init;
        interface
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let Some(materialize) = self.unit.materialize else {
            return;
        };
        let responsibility = give(uruk_responsibility(responsibility));
        // SAFETY: the host's own callback, which takes the responsibility.
        unsafe { materialize(self.owned.get(), responsibility) };
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        if let Some(discard) = self.unit.discard {
            let name = c_text(dylib.jit().name_of(symbol));
            // SAFETY: the host's own callback.
            unsafe { discard(self.owned.get(), name.as_ptr()) };
        }
    }

    fn improver(&self) -> Option<Arc<dyn Reoptimizer>> {
        let improver = HostImprover {
            improve: self.unit.improve?,
            owned: Arc::clone(&self.owned),
        };
        Some(Arc::new(improver))
    }
}

/// The context of a unit, which is dropped even if the rest of a call is invalid: unless the struct
/// is null, or has an impossible size.
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn owned_of(unit: *const uruk_unit) -> Option<Owned> {
    let end = std::mem::offset_of!(uruk_unit, drop) + size_of::<usize>();
    let fields = |unit: &uruk_unit| Owned::new(unit.context, unit.drop);
    // SAFETY: by the caller's promise; the struct is of integers, pointers and nullable functions.
    unsafe { owned_by(unit, end, fields, NOTHING) }
}

/// A unit of a dylib's session, with its context from [`owned_of`].
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn unit_of(
    dylib: &Dylib,
    unit: *const uruk_unit,
    owned: Option<Owned>,
) -> Result<HostUnit, Fault> {
    // SAFETY: by the caller's promise; the struct is of integers, pointers and nullable functions.
    let unit = unsafe { sized(unit, NOTHING, "unit")? };
    let owned = Arc::new(owned.unwrap_or_else(|| Owned::new(unit.context, None)));
    if unit.materialize.is_none() {
        return Err(unusable("materialize", "a null pointer"));
    }
    // SAFETY: by the caller's promise.
    let (name, symbols) = unsafe {
        let symbols = definitions_of(dylib, unit.symbols, unit.symbol_count)?;
        (text(unit.name, "name")?.to_owned(), symbols)
    };
    let init = match unit.init.is_null() {
        true => None,
        // SAFETY: by the caller's promise.
        false => Some(dylib.jit().intern(unsafe { text(unit.init, "init")? })),
    };
    let symbols = symbols
        .into_iter()
        .map(|(symbol, _, flags)| (symbol, flags));
    Ok(HostUnit {
        name,
        symbols: symbols.collect(),
        init,
        owned,
        unit,
    })
}

/// Defines what a unit promises: all of it, or nothing. The struct, and its texts and arrays,
/// need not live longer than the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_define_unit(
    dylib: *const uruk_dylib,
    unit: *const uruk_unit,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the pointer.
        let owned = unsafe { owned_of(unit) };
        // SAFETY: the caller's promise of the handle.
        let dylib = unsafe { dylib_of(dylib)? };
        // SAFETY: the caller's promise of the pointer.
        Ok(dylib.define(unsafe { unit_of(dylib, unit, owned)? })?)
    })
}

/// As `uruk_dylib_define_unit`, under a tracker.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_tracker_define_unit(
    tracker: *const uruk_tracker,
    unit: *const uruk_unit,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the pointer.
        let owned = unsafe { owned_of(unit) };
        // SAFETY: the caller's promise of the handle.
        let tracker = &unsafe { handle(tracker, "tracker")? }.0;
        // SAFETY: the caller's promise of the pointer.
        Ok(tracker.define(unsafe { unit_of(&tracker.dylib(), unit, owned)? })?)
    })
}
