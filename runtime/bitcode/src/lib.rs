//! Reads LLVM's bitcode without LLVM: a module's tables, and one body at a time.
//!
//! It reads the format of the LLVM release that Uruk is built with ([`ir`]). Unknown forms, older ones
//! among them, are refused, and LLVM reads them instead.
//!
//! Invariants:
//! - No input panics, and nothing is allocated by a size that the input claims.
//! - Indices are checked: numbers of types, values and blocks are in range once they are in [`ir`].
//!
//! | file | does |
//! |---|---|
//! | [`stream`] | bits, records, abbreviations |
//! | `walk` | blocks |
//! | [`Source`] | a module: types, globals, attributes, constants, where bodies are |
//! | [`modules`] | files of several modules |
//! | `globals` | records of globals |
//! | `constants` | constants of a module or a body |
//! | `body` | one body |
//! | [`digest`] | hashes of definitions, equal in two modules where the definitions mean the same |
//!
//! # Why
//! LLVM takes 83 us for the body of a function of sqlite, and another 61 to verify it, in the
//! median of the first calls of a trivial query.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ir;
pub mod stream;

mod attributes;
mod body;
mod constants;
pub mod digest;
mod files;
mod globals;
mod marks;
mod module;
mod types;
mod walk;

pub use files::modules;
pub use module::{Refused, Source};
