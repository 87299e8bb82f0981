//! Options shared by all compiles of a session.

/// Settings of a compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Instruction set extensions of the processor.
    pub features: Features,
}

/// Instructions of the processor beyond SSE2. None of them changes a result: they give the same
/// bits with fewer instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `popcnt`.
    pub popcnt: bool,
    /// `lzcnt`.
    pub lzcnt: bool,
    /// `tzcnt`.
    pub bmi1: bool,
    /// SSE3 and SSSE3.
    pub ssse3: bool,
    /// SSE4.1.
    pub sse41: bool,
    /// `cmpxchg16b`.
    pub cx16: bool,
}
