//! Random programs and sequences against models, and all instructions at all tiers.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/clang.rs"]
mod clang;

mod abi;
mod every_instruction;
mod leave_random;
mod model;
mod operations;
