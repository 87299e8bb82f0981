//! `dlsym` and `dladdr` that know JIT'd symbols.
//!
//! A natively linked program that exports its symbols finds them in the global scope; JIT'd code
//! must find them there too. Libraries that call `dlsym` themselves find the program's stand-in
//! there ([`preempt`]).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use crate::fork::gate;
use crate::fork::shield::Shield;
use crate::guest::preempt;
use crate::host::listed::place_of;

/// The session's symbols, for the guest's view of the dynamic loader.
pub(crate) trait Symbols: Send + Sync {
    /// The address of a symbol the program exports, if it is known without a lock.
    fn ready_address(&self, name: &str) -> Option<u64>;
    /// The address of a symbol the program exports.
    fn address(&self, name: &str) -> Option<u64>;
    /// The function that contains a code address: its name, nul-terminated and never freed, and its
    /// start.
    fn function_at(&self, pc: u64) -> Option<(&'static CStr, u64)>;
    /// The exported variable that begins at an address: its name, nul-terminated and never freed.
    fn variable_at(&self, start: u64) -> Option<&'static CStr>;
    /// All existing function bodies: start, end, name.
    fn functions(&self) -> Vec<(u64, u64, &'static CStr)>;
    /// The address range of function bodies.
    fn code_range(&self) -> std::ops::Range<u64>;
    /// The program's file name.
    fn file(&self) -> &CStr;
}

static SYMBOLS: OnceLock<Box<dyn Symbols>> = OnceLock::new();

/// Makes the symbols of the main program visible to `dlsym`. The first caller wins.
pub(crate) fn install(symbols: Box<dyn Symbols>) {
    // A second program in one process keeps its symbols to itself.
    let _ = SYMBOLS.set(symbols);
}

/// The symbols of the main program, once there is one.
pub(super) fn installed() -> Option<&'static dyn Symbols> {
    SYMBOLS.get().map(|symbols| &**symbols)
}

/// True if `handle` means the global scope or the main program.
fn is_global(handle: *mut c_void) -> bool {
    static MAIN: OnceLock<usize> = OnceLock::new();
    let main = || {
        // Under a pass: a child of fork would wait for the thread that initializes this.
        let _busy = gate::enter();
        MAIN.get_or_init(|| {
            // SAFETY: asks for the main program's own handle.
            unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) as usize }
        })
    };
    handle.is_null() || handle as usize == *MAIN.get().unwrap_or_else(main)
}

/// `dlsym` as guest code sees it.
///
/// # Safety
/// As `dlsym`: a live handle and a C string.
pub(super) unsafe extern "C" fn guest_dlsym(
    handle: *mut c_void,
    name: *const c_char,
) -> *mut c_void {
    if is_global(handle)
        && !name.is_null()
        && let Some(symbols) = SYMBOLS.get()
        // SAFETY: a C string by the caller's promise.
        && let Ok(text) = unsafe { CStr::from_ptr(name) }.to_str()
    {
        if let Some(address) = symbols.ready_address(text) {
            return address as *mut c_void;
        }
        // No fork meanwhile: the child would find the session's locks held.
        let _busy = gate::enter();
        if let Some(address) = symbols.address(text) {
            return address as *mut c_void;
        }
    }
    if !name.is_null() {
        // SAFETY: a C string by the caller's promise.
        crate::stacks::search::note_asked(unsafe { CStr::from_ptr(name) });
    }
    // The first call of a handler may make a worker call the loader, too.
    let _shield = Shield::raise();
    // SAFETY: by the caller's promise.
    let found = unsafe { libc::dlsym(handle, name) };
    match found.is_null() || name.is_null() || !is_global(handle) {
        true => found,
        // SAFETY: a C string by the caller's promise.
        false => preempt::behind_gate(unsafe { CStr::from_ptr(name) }, found as u64) as *mut c_void,
    }
}

/// A name and its start address.
type NamedAddress = (&'static CStr, u64);

/// The answer of `dladdr` for an address of the program: its base, and the name if there is one.
fn describe(symbols: &dyn Symbols, address: u64) -> Option<(u64, Option<NamedAddress>)> {
    let function = {
        let _busy = gate::enter();
        symbols.function_at(address)
    };
    if let Some((name, start)) = function {
        return Some((start, Some((name, start))));
    }
    if let Some(place) = place_of(address) {
        let variable = place.variable.and_then(|start| {
            let _busy = gate::enter();
            Some((symbols.variable_at(start)?, start))
        });
        return Some((place.base, variable));
    }
    // Functions of objects without exported names.
    let code = symbols.code_range();
    code.contains(&address).then_some((code.start, None))
}

/// `dladdr` as guest code sees it.
///
/// # Safety
/// As `dladdr`: `info` is writable.
pub(super) unsafe extern "C" fn guest_dladdr(
    address: *const c_void,
    info: *mut libc::Dl_info,
) -> c_int {
    if let Some(symbols) = SYMBOLS.get()
        && let Some((base, name)) = describe(&**symbols, address as u64)
    {
        // SAFETY: writable by the caller's promise.
        unsafe {
            (*info).dli_fname = symbols.file().as_ptr();
            (*info).dli_fbase = base as *mut c_void;
            (*info).dli_sname = name.map_or(null(), |(name, _)| name.as_ptr());
            (*info).dli_saddr = name.map_or(0, |(_, start)| start) as *mut c_void;
        }
        return 1;
    }
    let _shield = Shield::raise();
    // SAFETY: by the caller's promise.
    unsafe { libc::dladdr(address, info) }
}
