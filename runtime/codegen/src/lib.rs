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
//! Reading order, from the floor up:
//!
//! | files | hold |
//! |---|---|
//! | [`summary`], [`plan`], [`compile`], `dependence`, [`profile`], `parcel`, [`facts`], `unit` | plain data: the symbols of a module and how each is reached, requests and results |
//! | `context`, `handles`, `cplusplus`, `attributes`, `properties`, `verifying`, `flags` | safe references to LLVM's objects, and their properties |
//! | `structure` (checked before LLVM reads), `origin` (target machine), `scan`, `table` | a module as LLVM has read it |
//! | [`reader`] with `opened`, `desk`, `library`, `foreign`; [`pool`], `ledger`, `room` | reading: modules and bodies, on demand |
//! | `requests` | all operations of a reader |
//! | `inspect`, `query`, `sketch`, `interface`, `signature`, `shape`, `flow`, `labels`, `mentions` | questions about a module and its bodies |
//! | `source`, `planning`, `candidates`, `survey`, `data` | plans of copies |
//! | `copy` with `copying`, `globals`, `body`, `constant`, `rewrite`, `instrument`, `offered` | from a plan to a unit |
//! | `guide`, `weights`, `probe`, `values`, `variant`, `continuation`, `lines` | additions to a unit: counters, profiles, versions that start in the middle, debug information |
//! | `emission` with `host`, `optimize`, `passes`, `hints`, `apart` (constants), `jumps`, `stacks`, [`emit`], `pipeline`, [`warm`] | from a unit to an object |
//! | `compiler`, `whole`, `library::stock`, `parcel::pack`, `wanted` | one compile, of a function or of all; simplified bodies, and those for other modules |
//! | `numbered`, `numbering`, `stored` | a module read without LLVM; results as bytes |
//! | [`native`], `looks` | modules of a program that runs natively; fuel checks |
//! | [`cancel`], `gate`, [`fatal`] | ends of compiles before their time |
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
pub mod native;
pub mod plan;
pub mod pool;
pub mod profile;
pub mod reader;
mod recursion;
pub mod summary;
pub mod warm;

mod apart;
mod attributes;
mod bitcode;
mod body;
mod candidates;
mod compiler;
mod constant;
mod context;
mod continuation;
mod copy;
mod copying;
mod cplusplus;
mod data;
mod dependence;
mod desk;
mod emission;
mod flags;
mod flow;
mod foreign;
mod gate;
mod globals;
mod guide;
mod handles;
mod hints;
mod host;
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
mod numbering;
mod offered;
mod opened;
mod optimize;
mod origin;
mod parcel;
mod passes;
mod pipeline;
mod planning;
mod probe;
mod properties;
mod query;
mod requests;
mod rewrite;
mod room;
mod scan;
mod shape;
mod signature;
mod sketch;
mod sole;
mod source;
mod stacks;
mod stored;
mod structure;
mod survey;
mod table;
mod tags;
mod transform;
mod unit;
mod unreached;
mod values;
mod variant;
mod verifying;
mod wanted;
mod weights;
mod whole;

pub use apart::{APART, is_shared, stays_with_code};
pub use bitcode::Bitcode;
pub use cancel::Cancellation;
pub use compile::{COUNTERS, Compile, Compiled, Counters, Knowledge, LOOPS, Rare, Tier, Variant};
pub use continuation::start::Start;
pub use dependence::{Dependence, DependenceKind};
pub use emit::{host_cpu, llvm_version};
pub use error::CodegenError;
pub use facts::{FactStats, FactStore};
pub use inspect::inspect;
pub use interface::Layout;
pub use labels::{Labels, labelled, space_name};
pub use looks::Look;
pub use numbered::{Numbered, Plain, Read};
pub use parcel::{Offer, Parcel};
pub use plan::{Access, Import, ModulePlan};
pub use pool::ReaderPool;
pub use profile::{Count, PROBES, Probes, Profile, ProfileError, Refused, Site, Steady, Target};
pub use reader::Reader;
pub use room::ReadingRoom;
pub use shape::Measure;
pub use sketch::Sketch;
pub use stored::Key;
pub use summary::{
    BODY_PREFIX, Kind, Linkage, ModuleSummary, Placement, Structor, SymbolId, SymbolInfo,
};
pub use transform::{IrUnit, Transform};
pub use uruk_leaving::{Described, Head, Heads, Mismatch, Passed, Places, Reason, matching};
pub use uruk_lower::Refused as NotPlain;
pub use uruk_lower::data as laid;
