//! Decides which code is dead, and in which order it is proved, moved and freed.
//!
//! This package accesses no memory, threads or clocks. The runtime tells the [`Engine`] which
//! blocks became live or unreachable; the engine decides ([`policy`]) when a cycle runs, and drives
//! it through an [`Environment`].
//!
//! Semi-space reclaim with ambiguous roots: Bartlett's mostly-copying collection (WRL
//! Research Report 88/2, 1988), applied to code. A block that some stack may return into
//! stays where it is; the others are copied or freed around it.
//!
//! Modules, in reading order: [`ids`], [`slots`], [`block`] (a block's life), [`mod@env`] (the
//! environment), `proof` (the argument for freeing), [`policy`] (the time of cycles), [`mod@order`]
//! (the order of copies), [`engine`] (the cycle), [`inbox`] (from publishers to the engine),
//! [`stats`], [`config`]. The tests have a model world (`tests/check`).
//!
//! Invariants:
//! - A block is freed only if a scan that began after it became unreachable was answered by every
//!   thread that could hold it, and none did.
//! - A block is never lost by a failure; it is tried again, and delays no other.
//! - Equal inputs at equal times give equal calls of the environment.
//!
//! ```
//! use uruk_reclaim::{Config, Engine, Inbox, Kind, Nanos, Note, Step};
//! # fn drive(env: &mut dyn uruk_reclaim::Environment, clock: impl Fn() -> Nanos) {
//! let inbox: Inbox<Note> = Inbox::default();
//! let mut engine = Engine::new(&Config::default(), env.fork_generation());
//! let ticket = inbox.request(|ticket| Note::Request { kind: Kind::Evacuate, ticket });
//! loop {
//!     for note in inbox.take() {
//!         if let Err(error) = engine.apply(note, clock()) {
//!             eprintln!("{error}");
//!         }
//!     }
//!     match engine.step(env, clock()) {
//!         Step::Working => {}
//!         Step::Finished(summary) if summary.answered >= ticket => break,
//!         Step::Finished(_) => {}
//!         Step::Idle { .. } => break, // park until then, or until a note
//!     }
//! }
//! # }
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(unexpected_cfgs, reason = "loom")]

pub mod block;
pub mod config;
pub mod engine;
pub mod env;
pub mod ids;
pub mod inbox;
pub mod order;
pub mod policy;
mod proof;
pub mod slots;
pub mod stats;

pub use block::{Block, Dead, Event, Fixed, State, StepError};
pub use config::{Config, SettingError, Stacks};
pub use engine::{BLOCK_BYTES, Engine, NoteError, Step};
pub use env::{
    Affinity, Copied, CopyError, Environment, EnvironmentError, MayHold, Memory, Missing, Pin,
    ScanAnswer, Silence, Swing,
};
pub use ids::{
    BlockId, FunctionId, IdHasher, IdMap, Nanos, Space, Span, ThreadId, VersionId, shrink,
};
pub use inbox::{Inbox, Note};
pub use order::{Edge, Node, order};
pub use policy::{Kind, Reason, Situation, decide};
pub use slots::Slots;
pub use stats::{Amount, End, GivenUp, PinnedBlock, Stats, Summary};
