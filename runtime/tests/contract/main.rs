//! ORC's contract, behaviour by behaviour, through the library alone: a module per chapter, a
//! test per behaviour, named after it.
//!
//! What has its test elsewhere: functions of units and their stubs in `units.rs`, definitions
//! that come late and archives in `any_order.rs`, constructors, `atexit` and thread-locals in
//! `exit_*.rs` and `removal*.rs`, weak definitions of modules in `weak*.rs`, shapes of the
//! dependence graph beside it (`session/tests/graph.rs`).

#[path = "../support/unit.rs"]
#[allow(dead_code)]
mod unit;

mod aliases;
mod bad_input;
mod defining;
mod dependences;
mod errors;
mod generators;
mod link_order;
mod lookups;
mod names_and_flags;
mod responsibility;
mod runtime;
mod trackers;
