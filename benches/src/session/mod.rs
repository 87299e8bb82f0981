//! The operations of a session, beside LLVM's ORC in the same run: names, units, trackers, and
//! modules that come and go.
//!
//! A *scenario* is a command line that both sides understand: ours is carried out by this
//! executable in a process of its own, ORC's by a C++ program of ours (`benches/orc`), which is
//! compiled when the benchmarks run. Both print the same lines, and both call what they looked
//! up, so that a row that measures something else fails.
//!
//! Reading order: `readings` (the lines), `scenario` (running one, and comparing its phases with
//! what the kernel says of the process), `driver` (ORC's side), `inputs` (files both read),
//! `ours` (our side), `cranelift` (one scenario of a third), then the rows: `lookups`, `symbols`, `code`, `modules`.

mod code;
#[cfg(feature = "cranelift")]
mod cranelift;
mod driver;
mod inputs;
mod lookups;
mod modules;
pub mod ours;
mod readings;
mod scenario;
mod symbols;

pub use code::{measure_archive, measure_lazy_chain, measure_object_graph};
pub use lookups::measure as measure_lookups;
pub use modules::{measure_cheap_modules, measure_cycles, measure_live_objects};
pub use symbols::{measure_aliases, measure_graph, measure_pending, measure_publish};
