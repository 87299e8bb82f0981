//! The interface between the host and JIT'd code: values, functions of the host, and calls of JIT'd
//! code that return errors as values.
//!
//! | file | contents |
//! |---|---|
//! | [`types`], [`value`] | types of values in calls, and Rust's types among them |
//! | [`host`], [`bound`], [`functions`] | functions of the host: one, their definition, all of a session |
//! | [`declared`] | their types against declarations in modules |
//! | [`received`] | functions of the host whose types are known when they are defined |
//! | [`lazy`], [`producer`], [`production`], [`lapsing`] | functions whose IR is produced at their first call |
//! | [`failed`] | calls of functions without code |
//! | [`dynamic`] | calls whose types are known when they are made |

pub(crate) mod bound;
pub(crate) mod declared;
pub(crate) mod dynamic;
pub(crate) mod failed;
pub(crate) mod functions;
pub(crate) mod host;
mod lapsing;
pub(crate) mod lazy;
mod producer;
mod production;
mod received;
pub(crate) mod types;
pub(crate) mod value;
