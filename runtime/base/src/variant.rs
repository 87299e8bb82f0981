//! Ways to compile one function above tier 1 that differ in decisions of LLVM's heuristics.
//!
//! LLVM's options (`cl::opt`) are process-wide, so no variant uses them. Variants are attributes of
//! functions, passes left out of a pipeline, or parameters of passes, which can differ from one
//! compile to the next. Loop prefetching is left out: its pass needs a distance, which LLVM does
//! not define for x86-64 and takes only as an option.
//!
//! A variant changes no result, except `contract` where the embedder allows it.
//!
//! # Why Functions with loops begin at a multiple of 64 bytes by default. With LLVM's 16 the
//! position of an interpreter's loop in cache lines is random. At tier 2 the loop of the bench's
//! interpreter in Rust took 12.0 to 12.3 ms an iteration, and aligned 10.6 to 10.9 (native: 10.4 to
//! 10.6). That in C took 18.3 and 16.4 (16.8). None of five other kernels was slower. Aligning all
//! functions of sqlite made it 1 to 2 % slower: most have no loop, and run better close together.
//!
//! The best of the four 16-byte offsets cannot be predicted. The same instructions of that
//! interpreter in C took 12.7 to 13.8 ms an iteration at the first and the last of the four, and
//! 9.9 to 10.7 at the two between, in every process. It depends on which branches share a line, and
//! so an entry of the predictor. clang's own -O3 took 9.5 to 10.0 or 12.0 to 13.5, depending on its
//! alignment option.
//!
//! Two parts of a variant cancel each other's gain where loops are short: a loop that is not
//! vectorized is unrolled instead, and one that is not unrolled is vectorized. Rust's fannkuch,
//! whose loops go round twice in the mean, took 15.6 ms an iteration plain, 15.8 without vectors,
//! no less without unrolling, and 14.5 without both. So that is a step of its own
//! ([`Change::Rolled`]).
//!
//! ```
//! use uruk_base::{Change, Inlining, Variant};
//!
//! let variant: Variant = "inline=none no-unroll".parse()?;
//! assert_eq!(variant.inlining, Inlining::None);
//! assert!(!variant.unroll && variant.slp);
//! assert_eq!(variant.to_string(), "inline=none no-unroll");
//! assert_eq!(Variant::default().to_string(), "plain");
//! assert_eq!(Variant::default().with(Change::Unroll).to_string(), "no-unroll");
//! # Ok::<(), uruk_base::UnknownVariant>(())
//! ```

use std::fmt;
use std::str::FromStr;

/// The callees that may be inlined into a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Inlining {
    /// None but those marked `alwaysinline`.
    None,
    /// Those that LLVM chooses.
    #[default]
    Plain,
    /// All callees with a known body, up to the planner's size limit.
    Eager,
}

/// The greatest width of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Vectors {
    /// Loops are not vectorized.
    None,
    /// 128 bits.
    Narrow,
    /// The width that LLVM chooses for the CPU.
    #[default]
    Plain,
    /// 256 bits.
    Middle,
    /// 512 bits.
    Wide,
}

/// The position at which a function with loops begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Start {
    /// At the next free position.
    Packed,
    /// At a multiple of 64 bytes.
    #[default]
    Line,
    /// 16 bytes after a multiple of 64.
    Quarter,
    /// 32 bytes after a multiple of 64.
    Half,
    /// 48 bytes after a multiple of 64.
    ThreeQuarters,
}

impl Start {
    /// Bytes after a multiple of 64; `None` for the next free position.
    pub fn offset(self) -> Option<u32> {
        match self {
            Start::Packed => None,
            Start::Line => Some(0),
            Start::Quarter => Some(16),
            Start::Half => Some(32),
            Start::ThreeQuarters => Some(48),
        }
    }
}

/// Number of callees of a function that a variant decides about one by one.
pub const CALLEES: u8 = 6;

/// A way to compile a function; see the module. The default is that of tiers 2 and 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variant {
    /// LLVM's pipeline for -O3 instead of tier 2's own.
    pub thorough: bool,
    /// The callees to inline.
    pub inlining: Inlining,
    /// The width of vectors.
    pub vectors: Vectors,
    /// Whether loops are unrolled by parts; short ones are unrolled completely in any case.
    pub unroll: bool,
    /// Whether vector loops work on several vectors at a time.
    pub interleave: bool,
    /// Whether operations that lie side by side become vectors.
    pub slp: bool,
    /// Whether switches become jump tables.
    pub tables: bool,
    /// The position at which the function begins, if it has loops.
    pub start: Start,
    /// Whether its loops are aligned, too.
    pub loops: bool,
    /// Whether blocks are placed without the counts of their branches.
    pub static_order: bool,
    /// Whether the function gets a second body, specialized for the most frequent values of
    /// arguments and guarded by a comparison.
    pub values: bool,
    /// Callees that are not inlined: one bit for each of the first [`CALLEES`] candidates, in the
    /// order of their first calls.
    pub apart: u8,
    /// Whether products and sums are fused, where the embedder allows it.
    pub contract: bool,
}

impl Default for Variant {
    fn default() -> Variant {
        Variant {
            thorough: false,
            inlining: Inlining::Plain,
            vectors: Vectors::Plain,
            unroll: true,
            interleave: true,
            slp: true,
            tables: true,
            start: Start::Line,
            loops: false,
            static_order: false,
            values: false,
            apart: 0,
            contract: true,
        }
    }
}

/// One step from a variant to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Switches to the other pipeline.
    Thorough,
    /// Sets the inlining.
    Inlining(Inlining),
    /// Sets the width of vectors.
    Vectors(Vectors),
    /// Switches unrolling.
    Unroll,
    /// Leaves loops as they are written: neither vectorized nor unrolled.
    Rolled,
    /// Switches interleaving.
    Interleave,
    /// Switches packing of operations into vectors.
    Slp,
    /// Switches jump tables.
    Tables,
    /// Sets the position of the function.
    Start(Start),
    /// Switches the alignment of loops.
    Loops,
    /// Switches placing blocks by counts.
    Order,
    /// Switches the body for usual arguments.
    Values,
    /// Switches inlining of this one of the [`CALLEES`].
    Callee(u8),
    /// Switches contraction.
    Contract,
}

impl Change {
    /// All changes.
    pub const ALL: [Change; 29] = [
        Change::Inlining(Inlining::None),
        Change::Thorough,
        Change::Values,
        Change::Rolled,
        Change::Unroll,
        Change::Start(Start::Half),
        Change::Vectors(Vectors::None),
        Change::Start(Start::Quarter),
        Change::Slp,
        Change::Inlining(Inlining::Eager),
        Change::Callee(0),
        Change::Vectors(Vectors::Middle),
        Change::Vectors(Vectors::Wide),
        Change::Vectors(Vectors::Narrow),
        Change::Interleave,
        Change::Start(Start::ThreeQuarters),
        Change::Start(Start::Packed),
        Change::Loops,
        Change::Tables,
        Change::Order,
        Change::Callee(1),
        Change::Callee(2),
        Change::Callee(3),
        Change::Callee(4),
        Change::Callee(5),
        Change::Inlining(Inlining::Plain),
        Change::Vectors(Vectors::Plain),
        Change::Start(Start::Line),
        Change::Contract,
    ];
}

impl Variant {
    /// The variant after a change.
    #[must_use]
    pub fn with(mut self, change: Change) -> Variant {
        match change {
            Change::Thorough => self.thorough = !self.thorough,
            Change::Inlining(inlining) => self.inlining = inlining,
            Change::Vectors(vectors) => self.vectors = vectors,
            Change::Unroll => self.unroll = !self.unroll,
            Change::Rolled => (self.vectors, self.unroll) = (Vectors::None, false),
            Change::Interleave => self.interleave = !self.interleave,
            Change::Slp => self.slp = !self.slp,
            Change::Tables => self.tables = !self.tables,
            Change::Start(start) => self.start = start,
            Change::Loops => self.loops = !self.loops,
            Change::Order => self.static_order = !self.static_order,
            Change::Values => self.values = !self.values,
            Change::Callee(number) => self.apart ^= 1 << (number % CALLEES),
            Change::Contract => self.contract = !self.contract,
        }
        self
    }

    /// All words of the text form, each with whether it applies.
    fn words(&self) -> [(&'static str, bool); 25] {
        let apart = |number: u8| self.is_apart(number);
        [
            ("thorough", self.thorough),
            ("inline=none", self.inlining == Inlining::None),
            ("inline=eager", self.inlining == Inlining::Eager),
            ("vectors=none", self.vectors == Vectors::None),
            ("vectors=128", self.vectors == Vectors::Narrow),
            ("vectors=256", self.vectors == Vectors::Middle),
            ("vectors=512", self.vectors == Vectors::Wide),
            ("no-unroll", !self.unroll),
            ("no-interleave", !self.interleave),
            ("no-slp", !self.slp),
            ("no-tables", !self.tables),
            ("packed", self.start == Start::Packed),
            ("start=16", self.start == Start::Quarter),
            ("start=32", self.start == Start::Half),
            ("start=48", self.start == Start::ThreeQuarters),
            ("no-contract", !self.contract),
            ("aligned-loops", self.loops),
            ("static-order", self.static_order),
            ("values", self.values),
            ("apart=0", apart(0)),
            ("apart=1", apart(1)),
            ("apart=2", apart(2)),
            ("apart=3", apart(3)),
            ("apart=4", apart(4)),
            ("apart=5", apart(5)),
        ]
    }

    /// Whether the callee with that number is not inlined.
    pub fn is_apart(&self, number: u8) -> bool {
        number < CALLEES && self.apart >> number & 1 != 0
    }

    /// Bits that identify the variant, for names of stored compiles.
    pub fn bits(&self) -> u32 {
        let words = self.words();
        let bits = words.iter().enumerate();
        bits.map(|(at, &(_, holds))| u32::from(holds) << at).sum()
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words();
        let mut held = words.iter().filter(|(_, holds)| *holds);
        match held.next() {
            None => f.write_str("plain"),
            Some((first, _)) => {
                f.write_str(first)?;
                held.try_for_each(|(word, _)| write!(f, " {word}"))
            }
        }
    }
}

impl fmt::Display for Change {
    /// Prints the result of the change on the default variant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Inlining(Inlining::Plain) => f.write_str("inline=plain"),
            Change::Vectors(Vectors::Plain) => f.write_str("vectors=plain"),
            Change::Start(Start::Line) => f.write_str("start=0"),
            Change::Rolled => f.write_str("rolled"),
            change => Variant::default().with(*change).fmt(f),
        }
    }
}

/// Error: a text names no variant, or no change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariant {
    /// The unknown word.
    pub word: String,
}

impl fmt::Display for UnknownVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no way to compile", self.word)
    }
}

impl std::error::Error for UnknownVariant {}

impl FromStr for Change {
    type Err = UnknownVariant;

    fn from_str(text: &str) -> Result<Change, UnknownVariant> {
        let mut all = Change::ALL.into_iter();
        all.find(|change| change.to_string() == text)
            .ok_or_else(|| UnknownVariant {
                word: text.to_owned(),
            })
    }
}

impl FromStr for Variant {
    type Err = UnknownVariant;

    fn from_str(text: &str) -> Result<Variant, UnknownVariant> {
        let words = text.split_whitespace().filter(|&word| word != "plain");
        words
            .map(str::parse::<Change>)
            .try_fold(Variant::default(), |variant, change| {
                change.map(|change| variant.with(change))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        let mut seen = std::collections::HashSet::new();
        for first in Change::ALL {
            assert_eq!(first.to_string().parse(), Ok(first));
            for second in Change::ALL {
                let variant = Variant::default().with(first).with(second);
                assert_eq!(variant.to_string().parse(), Ok(variant), "{variant}");
                seen.insert((variant, variant.bits()));
            }
        }
        let bits: std::collections::HashSet<u32> = seen.iter().map(|(_, bits)| *bits).collect();
        assert_eq!(bits.len(), seen.len());
        let unknown = "plain fast".parse::<Variant>().unwrap_err();
        assert_eq!(unknown.to_string(), "\"fast\" is no way to compile");
    }
}
