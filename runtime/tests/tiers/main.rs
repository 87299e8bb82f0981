//! Code at its tiers, on its way through them, and the samples and trials that decide about it.
//!
//! Each module has a process of its own in `cargo xtask test`.

#[path = "../support/unit.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod unit;

mod atomics;
mod baseline;
mod checksum;
mod conditional_stores;
mod facts;
mod guided;
mod instrument;
mod parts;
mod rare;
mod recursion;
mod sampling;
mod sampling_start;
mod speculation;
mod support;
mod tier_faults;
mod tier_stress;
mod tiers;
mod tiers_budget;
mod tiers_contested;
mod tiers_drift;
mod tiers_work;
mod unit_tiers;
mod unreached;
mod waiting;
