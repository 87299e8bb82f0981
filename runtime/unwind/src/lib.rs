//! Unwind rows of JIT'd code: a process-wide index behind `_Unwind_Find_FDE`.
//!
//! libgcc's unwinder asks `_Unwind_Find_FDE(pc, bases)` for the frame
//! description of every frame it walks. An executable that exports a function
//! of that name is asked instead of libgcc's own; it forwards to [`find_fde`]:
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! unsafe extern "C" fn _Unwind_Find_FDE(
//!     pc: *mut c_void,
//!     bases: *mut uruk_unwind::DwarfEhBases,
//! ) -> *const c_void {
//!     // SAFETY: called by libgcc, with its own arguments.
//!     unsafe { uruk_unwind::find_fde(pc, bases) }
//! }
//! ```
//!
//! linked with `-Wl,--export-dynamic-symbol=_Unwind_Find_FDE` ([`interposed`] checks it). Why not
//! `__register_frame`: libgcc 12 keeps its registrations in one list that it searches linearly;
//! 50,000 of them cost 1.6 s at the first throw. Here the cost of a lookup depends only on how many
//! objects share a 4 KiB page. [`FrameRegistration`] is for hosts that cannot interpose (a
//! `cdylib`).
//!
//! # Invariants
//! - Lookups take no lock, allocate nothing and use no thread-local: they may
//!   run in a signal handler that interrupted anything, an insert included.
//! - A lookup sees an object whole or not at all.
//! - Rows inserted before code was published are found from that code.
//! - Nodes are freed only when no lookup can hold a reference (`readers`).
//!
//! # Map, in reading order
//! `node`: one inserted object. `table`: a pointer for each page. `readers`: counts of lookups.
//! `index`: insert, find, remove of one region. `registry`: the regions of the process and the
//! public handle. `libgcc`: the ABI of libgcc.

#![deny(missing_docs)]

mod index;
#[cfg(not(loom))]
mod libgcc;
#[cfg(all(loom, test))]
mod model;
mod node;
mod readers;
#[cfg(not(loom))]
mod registry;
mod sync;
mod table;

#[cfg(not(loom))]
pub use libgcc::{DwarfEhBases, FrameRegistration, find_fde, interposed, is_asked};
pub use node::{Found, Row, UnwindError, object_bytes};
#[cfg(not(loom))]
pub use registry::{
    MAX_REGIONS, RegionHandle, after_fork, before_fork, covers, find, name_at, register_region,
    try_before_fork,
};
