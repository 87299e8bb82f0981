//! Code memory of Uruk: one reservation, two views of the executable part,
//! pools with linear ownership.
//!
//! ```
//! use uruk_heap::{Heap, HeapConfig, Pool};
//!
//! let heap = Heap::new(HeapConfig::default())?;
//! let mut draft = heap.allocate(Pool::Code, 6, 16)?;
//! draft.write(0, &[0xb8, 42, 0, 0, 0, 0xc3])?; // mov eax, 42; ret
//! let code = draft.seal()?;
//! // SAFETY: the bytes are a function of that type, sealed, and `heap` lives.
//! let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(code.address()) };
//! assert_eq!(function(), 42);
//! # Ok::<(), uruk_heap::HeapError>(())
//! ```
//!
//! # Invariants
//! - **Reach.** Everything lies in one reservation of less than 2 GiB: every rel32
//!   from anywhere in it to anywhere in it fits ([`MAX_RESERVATION`]).
//! - **W^X.** No virtual address is writable and executable at the same time.
//!   With [`Backing::Dual`] code is written through a second mapping of the
//!   same memfd, with [`Backing::Flip`] by protection changes.
//! - **Linear life.** [`Draft`] (writable, unpublished) -> [`Sealed`] (never
//!   written again) -> [`Retired`] -> freed, or released, each step by value.
//! - **Two spaces.** Code is allocated in the current one of two
//!   ([`Heap::flip_spaces`]); code that still runs in the other stays there as an island.
//!   Pages are used again only after every core was serialised (module `reclaim`).
//! - **Zero.** A fresh draft reads as zero without having been touched, also
//!   when its memory was used before.
//! - **Few mappings.** With [`Backing::Dual`] the heap is [`DUAL_MAPPINGS`]
//!   kernel mappings however much is allocated; each generation of `fork` adds
//!   a handful in the child. `vm.max_map_count` is no limit on functions.
//! - **Fork.** The child never writes into pages of its parent; the parent changes nothing
//!   that a living child may execute or read (modules `fork`, `kin`).
//!
//! # Map, in reading order
//! `config`, `error`: settings and errors. `layout`: bounds of regions. `space`: code spaces;
//! `pool`: data; `freelist`, `spans`: all pure bookkeeping. `room`: size of the reservation;
//! `place`: its address. `memory`: the system calls; `opening`: when the alias can be written.
//! `heap`: the heap, its lock, allocation. `draft`: ownership of one allocation. `kin`: other
//! processes that map a block. `reclaim`: retired code back to free pages. `stub_region`: slots and
//! stubs. `fork`: the two sides of a fork.

#![deny(missing_docs)]

mod config;
mod draft;
mod error;
mod fork;
mod freelist;
mod guard;
mod heap;
mod kin;
mod layout;
mod memory;
mod opening;
mod place;
mod pool;
mod reclaim;
mod room;
mod space;
mod spans;
mod stub_region;

pub use config::{Backing, BackingChoice, Freed, HeapConfig, Place};
pub use draft::{Draft, Sealed};
pub use error::HeapError;
pub use heap::{CodeStats, Heap, HeapStats, Pool};
pub use layout::{
    MAX_LOW_RESERVATION, MAX_NEAR_RESERVATION, MAX_RESERVATION, MIN_RESERVATION, PAGE,
};
pub use memory::DUAL_MAPPINGS;
pub use pool::PoolStats;
pub use reclaim::{Reclaimed, Retired};
pub use room::Room;
pub use rustix::io::Errno;
pub use space::SpaceStats;
pub use stub_region::{StubPage, StubRegion};
