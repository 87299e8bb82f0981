//! What the compiler makes, compared with what LLVM's language reference says.
//!
//! The reference is an interpreter of [`uruk_baseline::ir`] (`interpret`, `eval`, `memory`), written
//! without a look at the compiler. Code is placed and run (`native`), with hosts (`world`) that it
//! calls; `oracle` looks at it without running it. What is tried are tables of all operations
//! (`directed`) and random functions (`random`, `generate`), which `reduce` makes small where
//! they fail.

mod chance;
mod directed;
mod directed_calls;
mod directed_more;
mod draft;
mod effects;
mod eval;
mod generate;
mod interpret;
mod itself;
mod memory;
mod native;
mod oracle;
mod random;
mod reduce;
mod trial;
mod world;
