//! LLVM as any library: it is there from the process's first moment.

use std::ffi::{CStr, c_void};
use std::time::Duration;

use crate::Missing;

unsafe extern "C" {
    fn LLVMContextCreate() -> *mut c_void;
    #[link_name = "_ZTVN4llvm19raw_svector_ostreamE"]
    static STREAM_VTABLE: [*const c_void; 2];
}

/// Has the library open. It is.
///
/// # Errors
/// None.
pub fn open() -> Result<(), Missing> {
    Ok(())
}

/// Whether the library is open. It is.
#[must_use]
pub fn is_open() -> bool {
    true
}

/// Calls `work` once the library is open: now.
pub fn when_open(work: fn()) {
    work();
}

/// The address of a function in the library.
#[must_use]
pub fn function() -> Option<usize> {
    Some(LLVMContextCreate as *const () as usize)
}

/// Looks which library it is that would be opened: none.
pub fn find() {}

/// What it takes of a processor to open it: nothing any more.
#[must_use]
pub fn loads_in() -> Duration {
    Duration::ZERO
}

/// Address space that is taken when it is opened, in bytes: none any more.
#[must_use]
pub fn room() -> usize {
    0
}

/// Whether the library needs another of that name and is not there yet: it is.
#[must_use]
pub fn needs(_name: &str) -> bool {
    false
}

/// Whether `file` is the library that is opened: none is.
#[must_use]
pub fn is_library(_file: &CStr) -> bool {
    false
}

/// The virtual table of `llvm::raw_svector_ostream`.
#[must_use]
pub fn stream_vtable() -> Option<*const c_void> {
    Some((&raw const STREAM_VTABLE).cast())
}
