//! Sequences for operations that no single instruction does, on given registers.
//!
//! Each function documents the registers that it clobbers. Unless documented otherwise, the result
//! may be in a register of an operand, and scratch registers differ from all others.

pub(crate) mod bits;
pub(crate) mod floats;
