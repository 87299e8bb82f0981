//! The exported `_Unwind_Find_FDE` that makes libgcc ask the index.

use std::ffi::c_void;

use uruk_unwind::DwarfEhBases;

#[unsafe(no_mangle)]
unsafe extern "C" fn _Unwind_Find_FDE(pc: *mut c_void, bases: *mut DwarfEhBases) -> *const c_void {
    // SAFETY: called by libgcc, with its own arguments.
    unsafe { uruk_unwind::find_fde(pc, bases) }
}
