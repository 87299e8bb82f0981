//! Stacks: calls that fail with a value, faults, panics, backtraces, and hosts with fibers. Names of
//! functions for fibers are in this executable only: they decide how the library searches stacks.
//!
//! Each module has a process of its own in `cargo xtask test`.

mod faults_asked;
mod guarded;
mod guarded_stacks;
mod panics;
mod reclaim_fibers;
mod trap_lines;
mod unwinding;
