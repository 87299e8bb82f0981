//! What crosses between the host and JIT'd code: values, functions of the host, and calls of JIT'd
//! code that fail with a value.
//!
//! | file | does |
//! |---|---|
//! | [`types`], [`value`] | what values are to a call, and Rust's types among them |
//! | [`host`], [`bound`] | functions of the host, and their types against declarations |
//! | [`received`] | functions of the host whose types are known when they are defined |
//! | [`lazy`] | functions whose IR is produced when they are first called |
//! | [`dynamic`] | calls whose types are known when they are made |
//! | [`guard`], [`trap`] | calls that can be left, and what they fail with |
//! | [`chain`], [`probe`] | which guard counts, on whichever stack |
//! | [`fault`], [`stacks`] | from a signal to a guard |
//! | [`interrupt`], [`asks`] | interrupts and deadlines |
//! | [`base`], [`ends`] | the end of a thread that made such calls |
//! | [`passes`], [`word`] | what code that looks asks: fuel, and the same without signals |

pub(crate) mod asked;
mod asks;
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
pub(crate) mod trap;
pub(crate) mod types;
pub(crate) mod value;
mod word;
