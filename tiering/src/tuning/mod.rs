//! The tuner's decisions: which of two codes of a function is faster, when to look again, what
//! to try next, and what that may cost. Plain values in and out, as in the rest of the package:
//! the runtime's `tuning` room compiles, switches slots and reads clocks.
//!
//! # What is compared
//! A *region*: a function (its root), what it inlines, and what inlines it. Moving code between
//! a callee and its caller moves samples between them, so a version is judged neither by its own
//! samples nor by its share of them, but by the processor time of all the program's threads per
//! entry of the root (or per unit of work, where the embedder counts those). Whatever a version
//! does to its callers, callees and caches is in that figure.
//!
//! # How
//! Two versions take turns in the root's slot for slices of some milliseconds; two slices in
//! random order are a pair, and [`Trial`] judges pairs. [`Drift`] watches what won, and has it
//! judged again when the load changes; [`Advice`] proposes the next candidate by what helped
//! functions of the same shape; [`Budget`] holds the account; [`Memory`] is what all of it comes
//! to as text, for the next run.

mod advice;
mod budget;
mod drift;
mod memory;
#[cfg(all(test, not(loom)))]
mod noise;
mod trial;

pub use advice::{Advice, Lesson, Shape};
pub use budget::{Account, Budget};
pub use drift::Drift;
pub use memory::{Known, KnownNative, Memory, Progress, Stale};
pub use trial::{Arm, Interval, Rules, Slice, Trial, Verdict};
