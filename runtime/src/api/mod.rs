//! The public handles: they are held by embedders, and contain no logic.
//!
//! A handle takes a pass of the gate ([`crate::fork::gate`]), finds its session
//! ([`crate::session::Session`]) and calls the entry of the responsible module.
//!
//! | file | handle |
//! |---|---|
//! | [`jit`], [`builder`] | a session and its settings |
//! | [`dylib`] | a symbol table: adding, looking up, compiling by name |
//! | [`tracker`] | what is removed together |
//! | [`symbols`], [`lookup`] | what else a dylib holds, and how it is asked |
//! | [`layers`] | what is done to code on its way |
//! | [`unit`], [`generator`] | definitions of an embedder's own making |
//! | [`improve`] | better code for them |
//! | [`functions`] | functions of the host, lazy ones, those that are called with values |
//! | [`func`] | a function that is called with types |
//! | [`settings`] | settings of a session that are another room's |
//! | [`running`] | a session while its code runs: tuning, samples, replacement, rollback, archives |
//! | [`native`] | machine code that is there already |
//! | [`sandbox`] | the end of all threads, before system calls are given up |
//! | [`seeing`] | what a session shows of itself |
//! | [`error`] | what all of them fail with |

pub(crate) mod builder;
pub(crate) mod dylib;
pub(crate) mod func;
mod functions;
pub(crate) mod generator;
pub(crate) mod improve;
pub(crate) mod jit;
mod layers;
pub(crate) mod lookup;
pub(crate) mod native;
mod running;
pub(crate) mod sandbox;
pub(crate) mod seeing;
mod settings;
pub(crate) mod symbols;
pub(crate) mod tracker;
pub(crate) mod unit;
