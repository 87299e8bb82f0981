//! A plugin of clang that records which local functions are called by their types in native code. With
//! `uruk cc --outline-loops` it also outlines loops that are entered once (`outline.cpp`).
//!
//! `uruk cc` loads it (`-fpass-plugin=`), and `uruk live` adopts the functions of the record: `locals.cpp` says
//! what is recorded, and [`uruk_live::program::locals`](../../src/program/locals.rs) reads it.
//!
//! # Why
//! Optimizers may change how a local function is called, and native code does not show it. LLVM's C interface has no
//! access to its pass pipeline from within clang, hence the C++. Only the entry point is in Rust: a `cdylib` exports
//! no symbol of a C++ library.

#![cfg(plugin)]

use std::ffi::{c_char, c_void};

/// LLVM's `PassPluginLibraryInfo`.
#[repr(C)]
pub struct PluginInfo {
    api: u32,
    name: *const c_char,
    version: *const c_char,
    register: unsafe extern "C" fn(*mut c_void),
    before_code: Option<unsafe extern "C" fn()>,
}

/// LLVM's `LLVM_PLUGIN_API_VERSION`; `locals.cpp` compares it with that of the headers.
const API: u32 = 2;

// SAFETY: as `locals.cpp` defines it.
unsafe extern "C" {
    /// Adds the passes to a `PassBuilder`.
    fn uruk_locals_register(builder: *mut c_void);
}

/// LLVM's entry point of a plugin.
// SAFETY: the name is LLVM's for this function, which no other library of the process may define.
#[unsafe(no_mangle)]
pub extern "C" fn llvmGetPassPluginInfo() -> PluginInfo {
    PluginInfo {
        api: API,
        name: c"uruk-locals".as_ptr(),
        version: c"1".as_ptr(),
        register: uruk_locals_register,
        before_code: None,
    }
}
