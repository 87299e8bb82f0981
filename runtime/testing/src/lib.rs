//! Support of tests: random numbers from a seed ([`Random`]), and tests that run again in a process
//! of their own ([`Child`],
//! [`in_own_process`]).
//!
//! Packages use it as a dev-dependency with a path and without a version: cargo leaves those out of
//! published packages.

mod child;
mod random;

pub use child::{Child, in_own_process};
pub use random::Random;
