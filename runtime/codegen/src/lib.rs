//! LLVM behind Uruk: bitcode in, relocatable ELF objects out.
//!
//! A module is never compiled as a whole when it runs lazily. [`Bitcode`] holds its bytes. A
//! [`Reader`] has read the module's symbol table into an LLVM context, and reads a body only when
//! that body is needed. A body is *copied* into a fresh one-function module of the same context,
//! where every other symbol is a declaration, and that module is emitted. The reader's module
//! itself is never changed, so any body can be extracted again at any tier.
//!
//! Invariants:
//! - Modules never cross threads: a reader is used by one thread at a time
//!   ([`ReaderPool`] lends it out), and only bytes go in and out.
//! - LLVM's process-wide options are never touched; settings travel as
//!   attributes, module flags, pipeline strings and target machines.
//! - No input ends the process: LLVM's diagnostics are collected per context
//!   and become [`CodegenError`]s.
//!
//! Reading order: [`summary`] (a module's symbols, as plain data), `structure` (checked before LLVM
//! reads), `origin` (target machine), `inspect` (reads an input whole), [`plan`] (how each symbol
//! is reached), [`compile`] (request and result), [`reader`], `opened`, `desk`, `handles` (safe
//! references to LLVM's objects), `table` and `source`, `planning`, `candidates`, `survey` and
//! `data` (plans of copies), `copying`, `globals`, `body` and `constant` (the copy), `compiling`
//! (one compile), `library`, `parcel` and `foreign` (bodies for other modules, and from them),
//! [`facts`], `optimize`, `passes` and `hints` (tiers 2 and 3), `apart` (constants), `flow` and
//! `shape` (loops and counters), `continuation` (versions that start in the middle), `baseline`
//! (functions for the compiler of tier 1), `labels`, `jumps` and `mentions` (addresses of labels),
//! `stacks`, [`profile`], `probe`, `guide` and `values` (counters of code, and their use at tier
//! 3), `lines` (for debuggers), [`emit`], `pipeline` and [`warm`], [`pool`], `ledger` and `room`,
//! `query`, `sketch` and `interface` (questions about a module), [`native`] (modules of a program
//! that runs natively), `looks` (fuel checks), [`cancel`] and `gate`, [`fatal`].
//!
//! # Why
//! The package uses a few C++ symbols of LLVM, but no C++ compiler. LLVM-C cannot read one body of
//! a lazy module, keep a code generation pipeline, or end passes early. `cplusplus` has the
//! symbols' names and the classes that are laid out by hand, for LLVM 22.1; a test compares objects
//! of a kept pipeline with those of a fresh one. Keeping the pipeline saves some 190 us a function
//! (`cargo xtask bench --only 'first call in sqlite'` prints the cost of a first call, in processor
//! time of the process).

#![deny(missing_docs)]

pub mod cancel;
pub mod compile;
pub mod emit;
pub mod error;
pub mod facts;
pub mod fatal;
pub mod fuzz;
pub mod native;
pub mod plan;
pub mod pool;
pub mod profile;
pub mod reader;
pub mod summary;
pub mod warm;

mod apart;
mod bitcode;
mod body;
mod candidates;
mod compiling;
mod constant;
mod context;
mod continuation;
mod copying;
mod cplusplus;
mod data;
mod desk;
mod flags;
mod flow;
mod foreign;
mod gate;
mod globals;
mod guide;
mod handles;
mod hints;
mod inspect;
mod instrument;
mod interface;
mod jumps;
mod labels;
mod ledger;
mod library;
mod lines;
mod looks;
mod mentions;
mod numbered;
mod opened;
mod optimize;
mod origin;
mod parcel;
mod passes;
mod pipeline;
mod planning;
mod probe;
mod query;
mod rewrite;
mod room;
mod scan;
mod shape;
mod signature;
mod sketch;
mod source;
mod stacks;
mod stored;
mod structure;
mod survey;
mod table;
mod tags;
mod transform;
mod unreached;
mod values;
mod variant;

pub use apart::{APART, is_shared, stays_with_code};
pub use bitcode::Bitcode;
pub use cancel::Cancellation;
pub use compile::{
    COUNTERS, Compile, Compiled, Counters, Dependence, DependenceKind, Knowledge, LOOPS, Rare,
    Tier, Variant,
};
pub use continuation::build::Start;
pub use emit::{host_cpu, llvm_version};
pub use error::CodegenError;
pub use facts::{FactStats, FactStore};
pub use foreign::Offer;
pub use inspect::inspect;
pub use interface::Layout;
pub use labels::{Labels, labelled, space_name};
pub use looks::Look;
pub use numbered::{Numbered, Plain, Read};
pub use parcel::Parcel;
pub use plan::{Access, Import, ModulePlan};
pub use pool::ReaderPool;
pub use profile::{Count, PROBES, Probes, Profile, ProfileError, Refused, Site, Steady, Target};
pub use query::Measure;
pub use reader::Reader;
pub use room::ReadingRoom;
pub use sketch::Sketch;
pub use stored::Key;
pub use summary::{
    BODY_PREFIX, Kind, Linkage, ModuleSummary, Placement, Structor, SymbolId, SymbolInfo,
};
pub use transform::{IrUnit, Transform};
pub use uruk_leaving::{Described, Head, Heads, Mismatch, Passed, Places, Reason, matching};
pub use uruk_lower::Refused as NotPlain;
pub use uruk_lower::data as laid;
