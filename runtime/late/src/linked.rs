//! LLVM linked as an ordinary library: it is loaded at process start.

use std::ffi::{CStr, c_void};
use std::time::Duration;

use crate::Missing;

unsafe extern "C" {
    fn LLVMContextCreate() -> *mut c_void;
    #[link_name = "_ZTVN4llvm19raw_svector_ostreamE"]
    static STREAM_VTABLE: [*const c_void; 2];
}

/// Does nothing: the library is open.
///
/// # Errors
/// None.
pub fn open() -> Result<(), Missing> {
    Ok(())
}

/// Whether the library is open: always.
#[must_use]
pub fn is_open() -> bool {
    true
}

/// Calls `work` once the library is open: at once.
pub fn when_open(work: fn()) {
    work();
}

/// The address of a function in the library.
#[must_use]
pub fn function() -> Option<usize> {
    Some(LLVMContextCreate as *const () as usize)
}

/// Finds out which library would be opened: does nothing.
pub fn find() {}

/// Processor time to open the library: zero.
#[must_use]
pub fn loads_in() -> Duration {
    Duration::ZERO
}

/// Address space to open the library, in bytes: zero.
#[must_use]
pub fn room() -> usize {
    0
}

/// Whether the library needs another of that name that is not loaded yet: none.
#[must_use]
pub fn needs(_name: &str) -> bool {
    false
}

/// Whether `file` is the library to open: never.
#[must_use]
pub fn is_library(_file: &CStr) -> bool {
    false
}

/// The virtual table of `llvm::raw_svector_ostream`.
#[must_use]
pub fn stream_vtable() -> Option<*const c_void> {
    Some((&raw const STREAM_VTABLE).cast())
}
