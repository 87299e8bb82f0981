//! Compares compiled code with LLVM's language reference.
//!
//! The reference is an interpreter of [`uruk_baseline::ir`] (`interpret`, `eval`, `memory`),
//! written independently of the compiler. Code is placed and run (`native`), with hosts (`world`)
//! that it calls; `oracle` checks it without running it. The inputs are tables of all operations
//! (`directed`) and random functions (`random`, `generate`), which `reduce` shrinks after a
//! failure.

mod chance;
mod directed;
mod directed_calls;
mod directed_more;
mod draft;
mod effects;
mod eval;
mod generate;
mod interpret;
#[path = "../ir/mod.rs"]
mod ir;
mod itself;
mod memory;
mod native;
mod oracle;
mod random;
mod reduce;
mod trial;
mod world;
