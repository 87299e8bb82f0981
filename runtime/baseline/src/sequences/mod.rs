//! What no instruction does alone: sequences of instructions, on registers that are given.
//!
//! Each function says which registers it changes. Unless it says otherwise, the result may be in
//! a register of an operand, and scratch registers are different from all others.

pub(crate) mod bits;
pub(crate) mod floats;
