//! The process that the runtime is in: its files, the loader, thread-local storage, and where LLVM is.
//!
//! Nothing here knows of a session.

pub(crate) mod clock;
pub(crate) mod elf;
mod executable;
pub(crate) mod exports;
pub(crate) mod filter;
pub(crate) mod library;
pub(crate) mod listed;
pub(crate) mod llvm;
pub(crate) mod loaded;
pub(crate) mod mapping;
pub(crate) mod process;
pub(crate) mod processes;
pub(crate) mod room;
pub(crate) mod sandbox;
pub(crate) mod stand_in;
pub(crate) mod tls;
