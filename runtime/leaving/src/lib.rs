//! Decides which loops of a function support on-stack replacement (OSR) by a continuation that
//! starts at their head, and which variables cross there.
//!
//! Both ends of the transition use this package: the compiled code with the exit, and the producer
//! of the continuation. They read one body in two ways, from bitcode and in LLVM's memory. Each
//! describes it as an [`Anatomy`], and all decisions use only that. So the two can differ only in
//! their descriptions, and tests compare these over whole programs.
//!
//! | file | contents |
//! |---|---|
//! | [`anatomy`] | a body as plain data, in the detail that OSR needs |
//! | [`meaning`] | the intrinsics with a meaning for OSR |
//! | [`graph`] | blocks and edges, loops |
//! | [`reasons`] | constructs that forbid OSR |
//! | [`rooms`] | escape of the addresses of `alloca`s, and how each value crosses |
//! | [`numbers`] | values that hold numbers assigned by each compile |
//! | [`alone`] | pointers without aliases |
//! | [`frame`] | variables that live across each head |
//! | [`heads`] | loops that are counted and support OSR |
//! | [`matching`] | matches a head with one of another body, and their variables |
//!
//! # Why
//! Values are numbers and sets are rows of bits or bytes, because the analysis runs in the first
//! call of a function with loops.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod alone;
pub mod anatomy;
pub mod frame;
pub mod graph;
pub mod heads;
pub mod matching;
pub mod meaning;
mod numbers;
pub mod reasons;
mod rooms;

pub use alone::is_alone;
pub use anatomy::{Anatomy, Carried, Code, Facts, Form, Instruction, NONE, Room, Simple};
pub use frame::{COPIED_BYTES, Crossing, Frame, Kind, Variable};
pub use graph::{Graph, Loop, around};
pub use heads::{Candidates, Decision, Head, Heads, Places, Shape, decide};
pub use matching::{Described, Living, Mismatch, Passed, matching};
pub use meaning::Meaning;
pub use reasons::{Forbidden, Reason};
