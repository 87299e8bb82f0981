//! libLLVM, opened when it is first needed.
//!
//! Loading a distribution's takes 11 to 17 ms of a processor: 190,000 words are relocated, and 700
//! constructors run. A program whose first code is made without LLVM need not wait for that, and
//! one that ends soon need not pay for it. Where LLVM's static libraries are installed, too, a
//! build links a smaller library of them, which takes 3 ms (`build/own.rs`): it is looked for
//! where this code is (`.`, `uruk` and `../lib/uruk` beside the file it is in), then where it was
//! linked, and must be this user's or root's and not writable by others; the distribution's is
//! opened where it is not found.
//!
//! This package defines the C functions of LLVM (and the few others that packages above call) as
//! *entries*, `jmp [word]`: so whoever calls LLVM, as these packages and `inkwell` do, calls an
//! entry, and nothing of the library is asked for by the linker, which then leaves it out
//! (`--as-needed`). Words lead to [`first`](entries) until the library is open: it saves the
//! arguments, opens the library, has all words filled in, and goes on.
//!
//! # Invariants
//! - Words change once, all of them, when the library is open and was found to have every
//!   function. Who sees an entry's new word sees the library relocated and constructed.
//! - Nobody else sees the entries: they are hidden, so that libraries of the process, another
//!   LLVM among them, are bound to their own. The library is opened for itself (`RTLD_LOCAL`).
//!   It is bound at once (`RTLD_NOW`): a name that is looked up later might be found in what the
//!   program has opened meanwhile.
//! - It is opened once and never closed.
//! - The loader's lock is held meanwhile. A thread that has it, in a constructor of some library
//!   or in a callback of `dl_iterate_phdr`, and waits for one that needs LLVM, would wait for
//!   ever: who may have both sees to it that the library is open before ([`open`]).
//!
//! Without the feature `late`, or where there is no shared library of LLVM at build time, LLVM is
//! linked as `llvm-sys` has it, and everything here says that it is open.
//!
//! # Why
//! Not `-z lazy` or the like: it is relocations of data and constructors that take the time, not
//! the binding of functions. Not a helper process: modules would have to cross. An entry costs a
//! jump per call of LLVM's, as a PLT does; that cannot be measured beside what LLVM does.

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

/// The library cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("LLVM cannot be loaded: {message}")]
#[non_exhaustive]
pub struct Missing {
    /// The dynamic loader's message, or the function that is not there.
    pub message: String,
}
