//! Functions of [`uruk_baseline::ir`] as text, and a check of the requirements on them.
//!
//! `write` and `parse` are the two directions of the text form, `names` has its words and `tokens`
//! its tokens. `check` and `dominance` check a function.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part"
)]

mod check;
mod dominance;
mod names;
mod parse;
mod parse_op;
mod tokens;
mod write;

pub use check::{Broken, check};
pub use parse::{ParseError, parse};
pub use uruk_baseline::ir::*;
pub use write::text;
