//! The tuner's decisions: which of two codes of a function is faster, when to compare again, which
//! change to try next, and how much that may cost. Plain values in and out, as in the rest of the
//! package: the runtime's `tuning` room compiles, switches slots and reads clocks.
//!
//! # Unit of comparison
//! A *region*: a function (its root), the functions inlined into it, and those
//! it is inlined into. Moving code between a callee and its caller moves samples between them. So a
//! version is judged neither by its own samples nor by its share of them. The measure is the
//! processor time of all the program's threads per entry of the root (or per unit of work, where
//! the embedder counts those). That figure includes all effects of a version on its callers,
//! callees and caches.
//!
//! # How
//! Two versions take turns in the root's slot for slices of some milliseconds; two slices in random
//! order are a pair, and [`Trial`] judges pairs. [`Turns`] sets the lengths of slices, and the end of
//! a comparison. [`Region`] is the state machine of a root: which candidate is next, and what a
//! result changes. [`Drift`] watches the winner, and starts another comparison when the load
//! changes; [`Advice`] proposes the next candidate by the results on functions of the same shape;
//! [`Budget`] holds the account; [`Memory`] is the text form of all results, for the next run.

mod advice;
mod budget;
mod candidate;
mod drift;
mod memory;
mod native;
#[cfg(all(test, not(loom)))]
mod noise;
mod region;
mod trial;
mod turns;

pub use advice::{Advice, Lesson, Shape};
pub use budget::{Account, Budget};
pub use candidate::{Candidate, Root, SHORTEST, TrialResult, Tried, TuningUnit};
pub use drift::Drift;
pub use memory::{Known, KnownNative, Memory, Progress, Stale};
pub use native::WAY;
pub use region::{Before, Check, Consequence, Possible, Region, RootFacts, RootPhase, Tested};
pub use trial::{Arm, Interval, Rules, Slice, Trial, Verdict};
pub use turns::{Arms, Turn, Turns};
