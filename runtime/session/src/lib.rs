//! Sessions, dylibs, units and lookup: the model of LLVM's ORC, rebuilt.
//!
//! A [`Session`] holds [`Dylib`]s, which are symbol tables. A [`Unit`] promises definitions. A
//! lookup of one of them materializes the unit, which gets an obligation ([`Responsibility`]):
//! resolve addresses, emit, or fail.
//!
//! Invariants:
//! - A name is looked up as an address only once it is *ready*: it and all that
//!   it depends on are in memory, unless the caller asked for *resolved*.
//! - Looking up a ready symbol takes no lock (`ready.rs`).
//! - No callback (unit, generator, completion, reporter, resource) ever runs
//!   under a lock of the session: changes are decided under the lock, and what
//!   they cause is collected in `effects.rs` and done after it.
//! - Nothing here knows memory, machine code or LLVM. Addresses are `u64`.
//!
//! The modules in reading order: `symbol` and `flags` name things; `error` has the errors; `unit`,
//! `responsibility`, `tracker`, `generator`, `alias` and `lookup` are the embedder's interface,
//! through the handles `session` and `dylib`; `state` is the symbol tables under the one lock, with
//! a file per kind of change; `graph` (on `forest`) decides readiness; `ready` is the lock-free
//! table, `order` the link order beside it; `pool` runs tasks; `inside` tracks the question that a
//! lookup is made for; `gate` keeps a fork out of the locks; `chunked`, `slab` and `sync` are the
//! data structures below.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(
    unexpected_cfgs,
    reason = "cfg(loom) switches the primitives in sync.rs under the model checker"
)]

mod alias;
mod chunked;
mod dump;
mod dylib;
mod effects;
mod error;
mod flags;
mod forest;
mod gate;
mod generator;
pub mod graph;
mod inside;
mod job;
mod lookup;
mod names;
mod number;
mod order;
mod pool;
mod ready;
mod responsibility;
mod session;
mod slab;
mod state;
mod symbol;
mod sync;
mod tracker;
mod unit;

pub use alias::{Alias, ReexportGenerator};
pub use dump::{Dump, DylibDump, SymbolDump};
pub use dylib::{Dylib, DylibId, Visibility};
pub use error::{Names, SessionError};
pub use flags::{Flags, SymbolState};
pub use generator::{Generator, GeneratorId, GeneratorRequest};
pub use inside::{Answering, Behalf};
pub use lookup::{Found, Lookup, LookupFuture, LookupKind, LookupResult, Missing, Need, Required};
pub use pool::{Pool, PoolConfig, prepare_thread};
pub use responsibility::{DependenceGroup, Making, Responsibility};
pub use session::{Session, SessionConfig, StillMissing, WeakSession};
pub use symbol::{Symbol, SymbolPool};
pub use tracker::{Resource, Tracker, TrackerEvent, TrackerKey};
pub use unit::{AbsoluteSymbols, Interface, Unit};

#[cfg(loom)]
pub mod model {
    //! Internal items that the loom models need.
    pub use crate::pool::Waiter;
    pub use crate::ready::ReadyTable;
}
