//! End-to-end tests: whole programs run under `uruk run` and natively, and
//! compared. What the native program does is the truth.
//!
//! Eight test binaries, each with the output of an ordinary `cargo test`:
//! - `cases`: one small program per construct, from `demos/cases`, each file
//!   with directives at its top ([`case`] lists them);
//! - `guests`: Lua, SQLite, zstd, bzip2 and a Rust program with std;
//! - `live`: the cases as native programs under `uruk live`;
//! - `attached`: native programs by hand: `uruk cc`, `uruk swap`, and `LD_PRELOAD`;
//! - `once`: programs whose loops are entered once, in their small sizes;
//! - `bad_input`: damaged and contradictory files, options that make no sense;
//! - `random_programs`: what csmith writes, seed by seed;
//! - `growth`: instructions of each part of ours while a program's size doubles, under callgrind.
//!
//! The program `uruk-stress` repeats the cases whose faults show in some runs only.
//!
//! The command under test is `URUK_BIN`, else the workspace's own `uruk`, which
//! is built first. `URUK_GATE` overrides the gate in `demos/cases/GATE`: cases
//! of later gates are ignored (`--include-ignored` runs them).
//!
//! Reading order: [`subject`] (the command under test), [`verdict`] (comparing two runs), [`gate`] (what
//! is expected to work by now), [`trial`] (a program compiled, run both ways and
//! compared), [`case`] (directives), then the suites.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod attached_suite;
pub mod bad_input;
pub mod bad_room;
pub mod case;
pub mod case_suite;
pub mod gate;
pub mod guest_suite;
pub mod live_added;
pub mod live_backtraces;
pub mod live_callers;
pub mod live_daemon;
pub mod live_damaged;
pub mod live_driver;
pub mod live_edits;
pub mod live_exchange;
pub mod live_faults;
pub mod live_files;
pub mod live_forced;
pub mod live_left_out;
pub mod live_libraries;
pub mod live_locals;
pub mod live_loops;
pub mod live_memory;
pub mod live_outlined;
pub mod live_preload;
pub mod live_results;
pub mod live_sandbox;
pub mod live_server;
pub mod live_shapes;
pub mod live_strings;
pub mod live_suite;
pub mod live_suspended;
mod live_talk;
pub mod live_tuning;
pub mod live_variables;
pub mod once_suite;
pub mod pairs;
mod random_live;
pub mod random_suite;
pub mod stress_suite;
pub mod subject;
pub mod trial;
pub mod verdict;
