//! Opens libLLVM when it is first needed.
//!
//! Loading a distribution's takes 11 to 17 ms of a processor: 190,000 words are relocated, and 700
//! constructors run. A program whose first code is made without LLVM need not wait for that, and a
//! short one need not pay for it. If LLVM's static libraries are installed, too, a build links a
//! smaller library of them, which takes 3 ms (`build/own.rs`). It is searched beside this code
//! (`.`, `uruk` and `../lib/uruk` from its file), then at its build path. It must belong to this
//! user or root and not be writable by others. If it is not found, the distribution's is opened.
//!
//! This package defines the C functions of LLVM (and the few others that packages above call) as
//! *entries*, `jmp [word]`. A call of LLVM by these packages and `inkwell` reaches an entry, so no
//! symbol of the library is left for the linker, which drops it (`--as-needed`). Words lead to
//! [`first`](entries) until the library is open: it saves the arguments, opens the library, fills
//! in all words, and continues the call.
//!
//! # Invariants
//! - Words change once, all of them, when the library is open and has every function. A thread that
//!   reads an entry's new word sees the library relocated and constructed.
//! - The entries are hidden, so other libraries of the process, another LLVM among them, are bound
//!   to their own functions. The library is opened for itself (`RTLD_LOCAL`). It is bound at once
//!   (`RTLD_NOW`): a later lookup might find a name in a library that the program opened since.
//! - It is opened once and never closed.
//! - The loader's lock is held while the library opens. A thread that holds it, in a constructor of
//!   some library or in a callback of `dl_iterate_phdr`, and waits for a thread that needs LLVM,
//!   would deadlock. Such callers must open the library first ([`open`]).
//!
//! Without the feature `late`, or without a shared library of LLVM at build time, `llvm-sys` links
//! LLVM, and this package reports it as open.
//!
//! # Why
//! Not `-z lazy` or the like: relocations of data and constructors take the time, not the binding
//! of functions. Not a helper process: modules would have to cross. An entry costs a jump per call
//! of LLVM's, as a PLT does; that cannot be measured beside LLVM's own work.

#![deny(missing_docs)]

#[cfg(late)]
mod entries;
#[cfg(not(late))]
mod linked;

#[cfg(late)]
pub use entries::{
    find, function, is_library, is_open, loads_in, needs, open, room, stream_vtable, when_open,
};
#[cfg(not(late))]
pub use linked::{
    find, function, is_library, is_open, loads_in, needs, open, room, stream_vtable, when_open,
};

/// The version of LLVM at build time, as `major.minor.patch`.
pub const BUILT_FOR: &str = env!("LLVM_VERSION");

/// The library cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("LLVM cannot be loaded: {message}")]
#[non_exhaustive]
pub struct Missing {
    /// The dynamic loader's message, or the missing function.
    pub message: String,
}
