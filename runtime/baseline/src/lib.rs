//! A fast compiler of functions to machine code: tier 1.
//!
//! A function comes as plain data ([`ir`]), and machine code leaves as plain data ([`Code`]): other
//! packages read LLVM IR and place the code. An unsupported function is reported before any code is
//! emitted, and LLVM compiles it as a whole.
//!
//! Invariants:
//! - Code behaves as LLVM's does for every program with defined behaviour: the same ABI, the
//!   same bits of floating point, the same traps.
//! - Every value has one place for its whole life, a register or a word of the frame, so no two
//!   paths to a block disagree about its place.
//! - No input panics; a function that cannot be compiled is an [`Uncovered`].
//!
//! | phase | file | from | to |
//! |---|---|---|---|
//! | cover | `coverage` | function | the first unsupported feature |
//! | analyse | `analysis` | function | order of blocks, loops, live ranges, folded values |
//! | assign | `places` | lives | a place for each value |
//! | emit | `emit` | both | [`Code`] |
//!
//! # Why
//! Linear scan over whole lives (Poletto and Sarkar, 1999), by weight of uses, rather than places
//! that change from block to block as in TPDE: edges need no repair but for phis, loops keep their
//! registers, and a continuation finds values in fixed places.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ir;

mod abi;
mod analysis;
mod asm;
mod code;
mod compiler;
mod coverage;
mod emit;
mod handlers;
mod leb128;
mod moves;
mod options;
mod places;
mod sequences;
mod unwind;

#[cfg(test)]
extern crate self as uruk_baseline;
#[cfg(test)]
#[path = "../tests/ir/mod.rs"]
mod text;

pub use compiler::{Compiler, compile, covers};
pub use options::{Features, Options};

pub use code::{Code, Fixup, FixupKind, Handlers, Uncovered, UnwindFixup, UnwindTarget};
