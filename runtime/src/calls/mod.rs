//! What crosses between the host and JIT'd code: values, functions of the host, and calls of JIT'd
//! code that fail with a value.
//!
//! | file | does |
//! |---|---|
//! | [`types`], [`value`] | what values are to a call, and Rust's types among them |
//! | [`host`], [`bound`] | functions of the host, and their types against declarations |
//! | [`lazy`] | functions whose IR is produced when they are first called |
//! | [`dynamic`] | calls whose types are known when they are made |
//! | [`guard`], [`trap`] | calls that can be left, and what they fail with |
//! | [`fault`], [`stacks`] | from a signal to a guard |
//! | [`interrupt`] | interrupts and deadlines |
//! | [`passes`] | what code that looks asks: fuel, and the same without signals |

pub(crate) mod bound;
pub(crate) mod dynamic;
mod fault;
pub(crate) mod guard;
pub(crate) mod host;
pub(crate) mod interrupt;
mod lazy;
pub(crate) mod passes;
mod production;
mod stacks;
pub(crate) mod trap;
pub(crate) mod types;
pub(crate) mod value;
