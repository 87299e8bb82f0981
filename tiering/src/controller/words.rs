//! The words between runtime and controller.

use std::fmt;

use crate::ids::{FunctionId, Nanos, Tier, VersionId};
use crate::policy::Facts;

/// What the runtime shall do.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Decision {
    /// Compile in the background and publish; then call [`Controller::finished`](super::Controller::finished).
    Compile {
        /// Which function.
        function: FunctionId,
        /// The number of the new version.
        version: VersionId,
        /// How.
        tier: Tier,
        /// It shall count its entries, so that it can be compared with what runs now. An
        /// entry takes so long that the increment is not noticed.
        counters: bool,
        /// Why.
        reason: Reason,
    },
    /// Go back to the version before, which is faster; then call
    /// [`Controller::reverted`](super::Controller::reverted). If that is not possible any more nothing needs to be said.
    Revert {
        /// Which function.
        function: FunctionId,
        /// The slower version.
        version: VersionId,
    },
    /// A compile's result is of no use: end it early if possible. `finished` is due all the
    /// same.
    Cancel {
        /// Which function.
        function: FunctionId,
        /// The version.
        version: VersionId,
    },
}

/// Why something is compiled.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// It pays.
    Hot {
        /// Time saved per time spent, as expected.
        score: f64,
        /// Processors it occupies.
        share: f64,
    },
    /// The embedder asked for it.
    Requested,
    /// The embedder pinned it to this tier.
    Pinned,
    /// The embedder took it down.
    Demoted,
}

/// How a compile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The slot holds it.
    Published {
        /// Processor time of the compile.
        compile: Nanos,
        /// Whether the code has counters.
        counters: bool,
    },
    /// Made, but something newer is published.
    Late {
        /// Processor time of the compile.
        compile: Nanos,
    },
    /// Cannot be made: it is not tried again at this tier until the body is replaced.
    Failed {
        /// Processor time until then.
        compile: Nanos,
    },
    /// Given up on somebody's wish.
    Cancelled,
    /// No memory for the code. Nothing is compiled for a while.
    NoMemory,
}

/// The first code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCode {
    /// The version's number.
    pub version: VersionId,
    /// How it was compiled.
    pub tier: Tier,
    /// What was seen of the function.
    pub facts: Facts,
    /// Time of the compile.
    pub compile: Nanos,
    /// Whether the code has counters.
    pub counters: bool,
}

/// What the controller knows of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FunctionView {
    /// What runs.
    pub version: Option<(VersionId, Tier)>,
    /// Processors it occupied when last heard of.
    pub share: f64,
    /// Time in this version; old times count less.
    pub spent: Nanos,
    /// Samples of this version.
    pub samples: u32,
    /// Waits for better code, or better code is being made.
    pub in_progress: bool,
    /// The tier it is pinned to.
    pub pinned: Option<Tier>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Hot { score, share } => {
                write!(
                    f,
                    "hot, score {score:.2}, {:.1} % of a processor",
                    share * 100.0
                )
            }
            Reason::Requested => f.write_str("requested"),
            Reason::Pinned => f.write_str("pinned"),
            Reason::Demoted => f.write_str("demoted"),
        }
    }
}
