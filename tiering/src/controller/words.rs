//! The types exchanged by runtime and controller.

use std::fmt;

use crate::ids::{FunctionId, Nanos, Tier, VersionId};
use crate::policy::Facts;

/// A decision, for the runtime to carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Decision {
    /// Compile in the background and publish; then call [`Controller::finished`](super::Controller::finished).
    Compile {
        /// The function.
        function: FunctionId,
        /// The number of the new version.
        version: VersionId,
        /// The tier to compile at.
        tier: Tier,
        /// Whether it must count its entries, for a comparison with the running version. An entry
        /// takes so long that the increment is negligible.
        counters: bool,
        /// The reason.
        reason: Reason,
    },
    /// Go back to the version before, which is faster; then call
    /// [`Controller::reverted`](super::Controller::reverted). If that is not possible any more, no
    /// call is needed.
    Revert {
        /// The function.
        function: FunctionId,
        /// The slower version.
        version: VersionId,
    },
    /// The result of a compile is no longer needed: end it early if possible. `finished` must be
    /// called in any case.
    Cancel {
        /// The function.
        function: FunctionId,
        /// The version.
        version: VersionId,
    },
}

/// The reason of a compile.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// Promotion pays.
    Hot {
        /// Expected time saved per time spent.
        score: f64,
        /// Processors that the function occupies.
        share: f64,
    },
    /// The embedder requested it.
    Requested,
    /// The embedder pinned it to this tier.
    Pinned,
}

/// The end of a compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The slot holds its code.
    Published {
        /// Processor time of the compile.
        compile: Nanos,
        /// Whether the code has counters.
        counters: bool,
    },
    /// Compiled, but a newer version is published.
    Late {
        /// Processor time of the compile.
        compile: Nanos,
    },
    /// It cannot be compiled: it is not tried again at this tier until the body is replaced.
    Failed {
        /// Processor time until then.
        compile: Nanos,
    },
    /// Cancelled by the runtime or the embedder.
    Cancelled,
    /// No memory for the code. No compile begins for a while.
    NoMemory,
}

/// The first code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstCode {
    /// The version's number.
    pub version: VersionId,
    /// The tier of the code.
    pub tier: Tier,
    /// The facts of the function's body.
    pub facts: Facts,
    /// Time of the compile.
    pub compile: Nanos,
    /// Whether the code has counters.
    pub counters: bool,
}

/// The controller's view of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FunctionView {
    /// The running version.
    pub version: Option<(VersionId, Tier)>,
    /// Processors that it occupied at the last update.
    pub share: f64,
    /// Time in this version; old times weigh less.
    pub spent: Nanos,
    /// Samples of this version.
    pub samples: u32,
    /// Whether it waits for better code, or a compile is in progress.
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
        }
    }
}
