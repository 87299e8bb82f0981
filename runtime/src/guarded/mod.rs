//! Guarded calls of JIT'd code: a fault, an interrupt, or a lack of fuel ends the call with a value.
//!
//! | file | contents |
//! |---|---|
//! | [`guard`] | guarded calls |
//! | [`chain`], [`probe`] | the guard in force, on any stack; reads of memory that may be unmapped |
//! | [`fault`], [`stacks`] | from a fault's signal to a guard; the alternate stack for overflows |
//! | [`asked`] | handlers of embedders for memory faults |
//! | [`interrupt`], [`asks`], [`timers`] | interrupts and deadlines |
//! | [`base`], [`ends`] | the end of a thread that made guarded calls |
//! | [`passes`], [`word`] | fuel, and interrupts and deadlines without signals |
//! | [`backtrace`] | addresses of a stack, and their names |

pub(crate) mod asked;
pub(crate) mod asks;
pub(crate) mod backtrace;
pub(crate) mod base;
pub(crate) mod chain;
pub(crate) mod ends;
mod fault;
pub(crate) mod guard;
pub(crate) mod interrupt;
pub(crate) mod passes;
pub(crate) mod probe;
pub(crate) mod stacks;
mod timers;
pub(crate) mod word;
