//! LLVM's bitcode, read without LLVM: what a module says of itself, and one body at a time.
//!
//! It reads what the LLVM release writes that Uruk is built with ([`ir`]); what it does not know,
//! older forms among it, it says, and somebody else reads it: LLVM.
//!
//! Invariants:
//! - No input panics, and nothing is allocated by a size that the input claims.
//! - Nothing is believed that is used as an index: numbers of types, values and blocks are in
//!   range once they are in [`ir`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ir;
