//! Tiers: how soon and how well programs run once they run hot.
//!
//! Steady state is taken inside one process, iteration by iteration (`curve`), from
//! processes that run in turns (`trial`); where the level changes is found, not
//! assumed (`changes`). `steady` compares with native code, `whole_run` with `lli` and
//! with compiling first, `envelope` with the best fixed tier; `promotion` is about the first
//! milliseconds (`trace`), `overhead` about the cost of sampling (`windows`: with and without, in one
//! process; `estimate`: of small differences).

pub mod beside;
mod changes;
mod curve;
mod estimate;
mod trace;
pub(crate) mod trial;

pub mod envelope;
pub mod overhead;
pub mod promotion;
pub mod steady;
pub mod whole_run;
pub mod windows;

pub use curve::{Curve, csv};
