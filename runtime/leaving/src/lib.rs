//! Which loops of a function can be left in the middle, for a continuation that starts at their
//! head, and what crosses there.
//!
//! Both ends of the crossing ask here: the code that leaves, and who makes the continuation. They
//! read one body in two ways, from bitcode and in LLVM's memory; each tells what it read as an
//! [`Anatomy`], and whatever is decided is decided of that. So the two cannot differ but in what
//! they tell, and tests compare that over whole programs.
//!
//! | file | is about |
//! |---|---|
//! | [`anatomy`] | a body as plain data, in as much detail as counts here |
//! | [`meaning`] | which intrinsics mean something |
//! | [`graph`] | blocks and edges, loops |
//! | [`reasons`] | what cannot be left in the middle |
//! | [`rooms`] | what becomes of the addresses of `alloca`s, and how each value crosses |
//! | [`numbers`] | which values hold numbers that each compile gives out anew |
//! | [`alone`] | which pointers are promised to be the only ones |
//! | [`frame`] | what lives across each head |
//! | [`heads`] | which loops are counted and can be left |
//! | [`matching`] | which head of another body goes on with what lives across one |
//!
//! # Why
//! Values are numbers and sets are rows of bits or bytes: this is on the way of first calls of
//! functions with loops.

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

pub use anatomy::{Anatomy, Carried, Code, Facts, Form, Instruction, NONE, Room, Simple};
pub use frame::{COPIED_BYTES, Crossing, Frame, Kind, Variable};
pub use graph::{Graph, Loop, around};
pub use heads::{Decision, Head, Heads, Places, Shape, decide};
pub use matching::{Described, Living, Mismatch, Passed, matching};
pub use meaning::Meaning;
pub use reasons::{Forbidden, Reason};
