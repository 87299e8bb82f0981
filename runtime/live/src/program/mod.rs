//! The files of the process, executable and libraries: their contents, and their state in memory.
//!
//! | file | holds |
//! |---|---|
//! | [`image`] | one file: symbols, text, constants, modules of bitcode, entries with room |
//! | [`headers`] | facts about a file for which its headers are enough |
//! | [`symbols`] | names to addresses, by object file where names are local |
//! | [`locals`] | local functions that are called by their types, as the compiler recorded |
//! | [`mentions`] | addresses that code and data mention |
//! | [`stream`] | the modules of a section into which a linker put one after the other |
//! | [`loaded`] | addresses at which the dynamic loader mapped the files |
//!
//! # Invariants
//! - Files are read and checked as input: a defect is an error, or makes the file one without bitcode.
//! - An address is one of the process: the file's plus the offset that the loader added.

pub mod headers;
pub mod image;
pub mod loaded;
pub mod locals;
pub mod mentions;
pub mod stream;
pub mod symbols;
