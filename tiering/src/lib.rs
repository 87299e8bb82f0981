//! Decides when a function is compiled again, at which tier, and which of its versions runs.
//!
//! Nothing here compiles, reads a clock or starts a thread. The runtime passes its measurements to
//! the [`Controller`] and asks it for decisions. For each function it keeps a [`FunctionVersions`],
//! through which every store into the function's slot goes.
//!
//! Invariants:
//! - A slot is stored only under the lock of its [`FunctionVersions`], with the entry of
//!   a ready version, and never with a version older than one published before
//!   (`versions`, model-checked in `tests/loom.rs`).
//! - Decisions depend only on the inputs and their times: a recorded [`stream`] gives the
//!   same decisions again.
//! - Every table and queue has a limit in [`Config`] and an answer for when it is reached.
//!
//! ```
//! use std::sync::Arc;
//! use uruk_tiering::{Config, Controller, Decision, Facts, FirstCode, FunctionId, Nanos};
//! use uruk_tiering::{Outcome, Tier, VersionIds};
//!
//! let ids = Arc::new(VersionIds::default());
//! let mut controller = Controller::new(&Config::default(), Arc::clone(&ids));
//! let function = FunctionId(7);
//! let first = FirstCode {
//!     version: ids.next(),
//!     tier: Tier::Baseline,
//!     facts: Facts { instructions: 40, ..Facts::default() },
//!     compile: Nanos::from_us(200),
//!     counters: true,
//! };
//! controller.on_compiled(Nanos::ZERO, function, &first);
//!
//! // A millisecond later it was entered 60,000 times.
//! let now = Nanos::from_ms(1);
//! controller.on_counters(now, function, 60_000, 0);
//! let Some(Decision::Compile { version, tier, .. }) = controller.next(now) else {
//!     panic!("it is hot")
//! };
//! assert_eq!(tier, Tier::Optimized);
//! let outcome = Outcome::Published { compile: Nanos::from_ms(2), counters: false };
//! controller.finished(Nanos::from_ms(3), version, outcome);
//! assert_eq!(controller.stats().promoted, [0, 1, 0]);
//! ```
//!
//! The modules in reading order: `ids` has numbers; `version` is the life of one version,
//! `versions` that of a function's. `config` lists the settings. `policy` has the formulas, `learn`
//! and `costs` their learned numbers, `activity` the record of a function. `cold` chooses code to
//! evict; `offers` holds the continuations for a version's loops (OSR), `passes` measures those;
//! `queue` orders candidates; `polls` sets the time of the next poll. `controller` ties them together
//! and `stats` shows it. [`tuning`] compares versions of a region that take turns. `stream` is the
//! text form of the inputs. The tests have a simulated machine (`tests/simulator`).

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(
    unexpected_cfgs,
    reason = "cfg(loom) switches the primitives in sync.rs under the model checker"
)]

mod activity;
mod cold;
mod config;
mod controller;
mod costs;
pub mod foresight;
mod ids;
mod leaders;
mod learn;
pub mod offers;
pub mod passes;
pub mod policy;
mod polls;
mod queue;
mod stats;
pub mod stream;
mod sync;
pub mod tuning;
mod version;
mod versions;

pub use cold::{Cold, Resident, TIMES};
pub use config::{Config, SettingError};
pub use controller::{Controller, Decision, FirstCode, FunctionView, Outcome, Reason};
pub use ids::{EntryAddress, FunctionId, Generation, Nanos, Tier, VersionId, VersionIds};
pub use learn::Estimate;
pub use policy::Facts;
pub use stats::{Learned, Stats};
pub use version::{Event, IllegalStep, VersionState};
pub use versions::{
    CommitError, Committed, Counts, Evicted, FunctionVersions, IN_FLIGHT_LIMIT, Kept, Late, Next,
    Publication, Purpose, RevertError, Reverted, Snapshot, Stage, StageError, Ticket, VersionError,
    VersionView,
};
