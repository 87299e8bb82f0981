//! What people and tools are told. Nothing here changes what a session does.
//!
//! | file | tells |
//! |---|---|
//! | [`event`] | what happens, as values: listeners, `tracing` |
//! | [`stats`] | counters of a run, as a table or JSON |
//! | [`baseline`], [`ahead`], [`evictions`] | what compiled without LLVM, what ahead of calls, and which code went |
//! | [`staying`] | functions that stay at a version, and why |
//! | [`parts`] | where time went |
//! | [`memory`], [`holdings`] | what memory is used for, and by whom |
//! | [`recording`] | a run as data for `uruk_report` |
//! | [`tools`] | gdb, perf and jitdump about code |
//! | [`disassemble`] | a compiled body, for people |

mod ahead;
pub(crate) mod baseline;
mod disassemble;
pub(crate) mod event;
pub(crate) mod evictions;
pub(crate) mod holdings;
pub(crate) mod memory;
pub(crate) mod parts;
pub(crate) mod recording;
pub(crate) mod stats;
pub(crate) mod staying;
pub(crate) mod tools;
