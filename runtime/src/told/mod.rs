//! Reports for people and tools. Nothing here changes the behaviour of a session.
//!
//! | file | reports |
//! |---|---|
//! | [`event`] | events as values: listeners, `tracing` |
//! | [`stats`] | counters of a run, as a table or JSON |
//! | [`baseline`], [`ahead`], [`evictions`] | compiles without LLVM, compiles ahead of calls, evicted code |
//! | [`staying`] | functions that stay at a version, and why |
//! | [`parts`] | where time went |
//! | [`memory`], [`holdings`] | uses of memory, and their owners |
//! | [`recording`] | a run as data for `uruk_report` |
//! | [`tools`] | code for gdb, perf and jitdump |
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
