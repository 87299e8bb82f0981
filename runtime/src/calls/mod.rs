//! The interface between the host and JIT'd code: values, functions of the host, and calls of JIT'd
//! code that return errors as values.
//!
//! | file | contents |
//! |---|---|
//! | [`types`], [`value`] | types of values in calls, and Rust's types among them |
//! | [`host`], [`bound`] | functions of the host, and their types against declarations |
//! | [`received`] | functions of the host whose types are known when they are defined |
//! | [`lazy`] | functions whose IR is produced at their first call |
//! | [`dynamic`] | calls whose types are known when they are made |
//! | [`guard`], [`trap`] | guarded calls, and their errors |
//! | [`chain`], [`probe`] | the guard in force, on any stack |
//! | [`fault`], [`stacks`] | from a signal to a guard |
//! | [`interrupt`], [`asks`] | interrupts and deadlines |
//! | [`base`], [`ends`] | the end of a thread that made such calls |
//! | [`passes`], [`word`] | fuel, and interrupts and deadlines without signals |

pub(crate) mod asked;
mod asks;
pub(crate) mod backtrace;
mod base;
pub(crate) mod bound;
mod chain;
pub(crate) mod declared;
pub(crate) mod dynamic;
mod ends;
mod fault;
pub(crate) mod guard;
pub(crate) mod host;
pub(crate) mod interrupt;
mod lapsing;
pub(crate) mod lazy;
pub(crate) mod passes;
mod probe;
mod production;
mod received;
mod stacks;
mod timers;
pub(crate) mod types;
pub(crate) mod value;
mod word;
