//! Replacing functions, alone and in sets, and loops that are left for other code.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/clang.rs"]
mod clang;
#[path = "../support/old_code.rs"]
mod old_code;
#[path = "../support/one_function.rs"]
mod one_function;
#[path = "../support/spinning.rs"]
mod spinning;

mod continuations;
mod continuations_change;
mod cross_modules;
mod recycled;
mod replace;
mod replace_added;
mod replace_at_loops;
mod replace_clear;
mod replace_dependents;
mod replace_events;
mod replace_fork;
mod replace_grown;
mod replace_listed;
mod replace_memory;
mod replace_migrate;
mod replace_nested;
mod replace_objects;
mod replace_quiet;
mod replace_random;
mod replace_removed;
mod replace_signals;
mod replace_whole;
