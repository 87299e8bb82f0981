//! Memory, threads and descriptors that sessions take and give back. An allocator counts the bytes of
//! Rust code in this binary.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/clang.rs"]
mod clang;
#[path = "../support/counting.rs"]
mod counting;
#[path = "../support/cycles.rs"]
mod cycles;

mod builder_limits;
mod growth;
mod growth_refused;
mod memory_report;
mod memory_sum;
mod removal_memory;
mod session_end;
mod sessions_end;
mod small_modules;
