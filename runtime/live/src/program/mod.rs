//! What the process consists of: its executable and libraries, as files say and as they lie in memory.
//!
//! | file | holds |
//! |---|---|
//! | [`image`] | one file: symbols, text, constants, modules of bitcode, entries with room |
//! | [`symbols`] | names to addresses, by object file where names are local |
//! | [`mentions`] | which addresses code and data have in them |
//! | [`stream`] | the modules of a section into which a linker put one after the other |
//! | [`loaded`] | where the dynamic loader put the files |
//!
//! # Invariants
//! - Files are read and checked as input: what is wrong with them is an error, or makes them files
//!   without bitcode.
//! - An address is one of the process: the file's plus what the loader added.

pub mod image;
pub mod loaded;
pub mod mentions;
pub mod stream;
pub mod symbols;
