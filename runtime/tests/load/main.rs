//! Adding code: modules, archives, units and names, and the order in which they come.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/clang.rs"]
mod clang;
#[path = "../support/unit.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod unit;

mod any_order;
mod contract;
mod labels;
mod layers;
mod lazy_ir;
mod lazy_production;
mod library;
mod listed;
mod names;
mod relative_tables;
mod several_modules;
mod units;
