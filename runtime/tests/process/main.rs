//! The program as a process: its end, the end of its threads, forks, signals, system calls that are
//! forbidden, and input that ends a process.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/clang.rs"]
mod clang;
#[path = "../support/ends.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod ends;

mod end_beside_forks;
mod exit_destructors;
mod exit_handlers;
mod exit_threads;
mod fatal_input;
mod fork_limits;
mod fork_lost;
mod fork_pending;
mod fork_stress;
mod initialize;
mod interrupted;
mod sandbox;
mod unseen_child;
mod untrusted;
