//! Choices of embedders, and facts about versions, that all layers know.

use std::time::Duration;

use crate::ids::Tier;

/// How functions are compiled over their life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tiers {
    /// At tier 1 when first called; hot functions move up in the background.
    #[default]
    Auto,
    /// All at one tier, when first called; none moves.
    Fixed(Tier),
    /// For tests, of programs and of this library: at tier 1 when first called; before
    /// the first call of any other function is answered, some that run already are
    /// compiled at tier 2, then 3, then 1 again. Slow, and the same every time in a
    /// program of one thread.
    Churn,
    /// For tests likewise: at tier 1 when first called; each loop is left for a continuation at
    /// tier 2 after so many passes of its head. A number above 50 seeds one from 1 to 50
    /// for each loop, of which half are 1 or 2.
    Leave(u32),
}

/// When a set of functions is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Level {
    /// At one instant: calls that begin before it run old code to its end, calls that
    /// begin after it run new code.
    #[default]
    Immediate,
    /// At an instant at which no thread runs, or will return into, code of a member or code that
    /// depends on one. Until then calls of members wait, except calls by threads that must go on to
    /// leave such code. If that takes longer than `wait`, nothing changes. A `fork` during the wait
    /// goes first, and the wait begins anew after it.
    Quiescent {
        /// Longest time for which calls wait.
        wait: Duration,
    },
}

impl Level {
    /// The longest time for which calls wait; `None` if they do not.
    pub fn wait(&self) -> Option<Duration> {
        match *self {
            Level::Immediate => None,
            Level::Quiescent { wait } => Some(wait),
        }
    }
}

/// The maker of a version's machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompiledBy {
    /// LLVM.
    Llvm,
    /// The baseline compiler.
    Baseline,
    /// An embedder's unit.
    Unit,
}

/// When functions are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Each function at its first call.
    #[default]
    Lazy,
    /// Everything before the program starts, module by module.
    Eager,
}
