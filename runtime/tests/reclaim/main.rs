//! Memory of code that nothing can call any more: removal, eviction, and compiles that are cancelled.
//!
//! Each module has a process of its own in `cargo xtask test`.

mod cancel;
mod constants;
mod eviction;
mod fuzz_reclaim;
mod host_states;
mod reclaim_libraries;
mod reclaim_refused;
mod reclaim_roots;
mod reclaim_threads;
mod removal;
mod sequences;
mod undefined;
