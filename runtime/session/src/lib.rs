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
//! The modules in reading order: `symbol`, `number` and `flags` name things; `error` has the errors;
//! `unit`, `responsibility`, `tracker`, `resource`, `generator`, `alias` and `lookup` are the
//! embedder's interface, through the handles `session` and `dylib`; `state` is the symbol tables
//! under the one lock, with a file per kind of change, and `effects` what a change causes; `graph`
//! (on `forest`) decides readiness; `shared` is the part of a dylib that is read without the lock:
//! `ready` the table of addresses, `order` the link order; `pool` runs tasks; `job` is a lookup in
//! progress, `inside` the question that it is made for; `gate` keeps a fork out of the locks;
//! `chunked`, `slab` and `sync` are the data structures below.
//!
//! Six files import each other, since their types do: `session` holds `state`, which holds units and
//! generators (`unit`, `generator`), whose obligations and requests (`responsibility`, `generator`)
//! hold `session` and give out `dylib`.

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
mod resource;
mod responsibility;
mod session;
mod shared;
mod slab;
mod state;
mod symbol;
mod sync;
mod tracker;
mod unit;

pub use alias::{Alias, ReexportGenerator};
pub use dump::{Dump, DylibDump, SymbolDump};
pub use dylib::Dylib;
pub use error::{Names, SessionError};
pub use flags::{Flags, SymbolState};
pub use generator::{Generator, GeneratorRequest};
pub use inside::{Answering, Behalf, Working};
pub use lookup::query::Lookup;
pub use lookup::{Found, LookupFuture, LookupKind, LookupResult, Missing, Need, Required};
pub use number::{DylibId, GeneratorId, TrackerKey};
pub use pool::{Pool, PoolConfig, prepare_thread};
pub use resource::{Resource, TrackerEvent};
pub use responsibility::{DependenceGroup, Making, Responsibility};
pub use session::{Session, SessionConfig, StillMissing, WeakSession};
pub use shared::Visibility;
pub use symbol::{Symbol, SymbolPool};
pub use tracker::Tracker;
pub use unit::{AbsoluteSymbols, Interface, Unit};

#[cfg(loom)]
pub mod model {
    //! Internal items that the loom models need.
    pub use crate::pool::Waiter;
    pub use crate::ready::ReadyTable;
}
