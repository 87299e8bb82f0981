//! Continuations: versions of a function that start at the head of one of its loops, for a
//! loop that runs on while better code for it is there.
//!
//! Code of tier 1 counts at the heads of loops. A count below zero says that a continuation is
//! offered: the code then calls it with the values that live across the head, and returns its
//! result. A frame never changes its kind: exceptions, unwinding, backtraces, `longjmp` and the end
//! of a thread meet two ordinary frames.
//!
//! | file | does |
//! |---|---|
//! | [`anatomy`], [`intrinsics`] | describe a body for [`uruk_leaving`], which decides which loops can be left, and which values cross |
//! | [`parts`] | parameters, phis and static `alloca`s of a body |
//! | [`frame`] | the variables that live across each head, as LLVM's values |
//! | [`offer`] | the count, and the call, in code of tier 1 |
//! | [`start`] | where a continuation starts |
//! | [`build`] | the version that starts at a head |
//! | [`regions`] | which blocks are copied, so that a nest of loops stays whole |
//! | [`making`], [`blocks`] | its entry, and its blocks |
//! | [`plain`] | labels that have the addresses of its blocks |
//! | [`promises`] | its attributes |
//! | [`describe`] | the heads of a body, for comparison with those of another one |
//! | [`entrance`] | a continuation of another body's loop |
//!
//! These values cross:
//!
//! | in the frame | crosses as | is in the continuation |
//! |---|---|---|
//! | a value in the middle of its life | itself; in memory if it is no integer, pointer or float, as the two ends have different features of the CPU | an argument, `noalias` if it is promised to be |
//! | a scalar `alloca` whose address never leaves | its contents | an `alloca` of its own, so a register |
//! | another such `alloca`, up to [`uruk_leaving::COPIED_BYTES`] | its address | a copy |
//! | any other `alloca` | its address; it stays in the old frame | a pointer, `noalias` if nothing else can point there |
//! | a saved stack pointer | nothing | the continuation's own: objects on the old stack stay there until both frames end |
//! | the number of a type that is caught (`llvm.eh.typeid.for`) | nothing | queried again: each function has its own numbers |
//! | an `alloca` that is not alive at the head | nothing | an `alloca` of its own |
//!
//! # Why
//! - No machine frame is read or written: a map of registers and slots would bind tier 1 to one
//!   code generator. HotSpot and V8 migrate frames, because their baseline is an interpreter
//!   or shares its frame layout.
//! - The sign of the count asks whether to leave. A loop that goes on pays a compare and a branch
//!   that is never taken, beside the increment that the policy reads anyway.

pub(crate) mod anatomy;
mod blocks;
pub(crate) mod build;
pub(crate) mod describe;
pub(crate) mod entrance;
pub(crate) mod frame;
pub(crate) mod intrinsics;
mod making;
pub(crate) mod offer;
#[cfg(test)]
mod oracle;
pub(crate) mod parts;
pub(crate) mod plain;
mod promises;
mod regions;
pub(crate) mod start;
