//! Native programs as tier 0: a library that is loaded into a program which carries its bitcode,
//! finds its hot functions by samples, and has them run compiled again.
//!
//! The program was built by `uruk cc`, or by clang with the same options. Its functions begin as they
//! are; what samples find hot is compiled from the bitcode for this processor, against the
//! program's own variables and functions, and the native entry is made a jump to the function's
//! stub. Nothing is changed before that, and everything can be taken back.
//!
//! Reading order: [`settings`], [`program`] (what the process consists of), [`choose`] (what may be
//! compiled again, as pure decisions), `variables` (what these refer to), `reach` (whose bodies are in whose native code), `reason` (why some are not) and [`known`] (what they are made of), `arguments` (which of them native code takes), `allocation` (programs that stay native), [`entries`] (text that is
//! written to), [`locked`], [`function`], [`session`], [`explain`], [`swap`], `meaning` (what names of new code mean), `callers` (native callers that new bodies do not fit), `merged` (functions with the same native code), `refused` (why an exchange is not made), `exchanges` (what was exchanged so far), [`control`], [`asking`], `seats` and `question` (`uruk swap`), `force` (tests), [`tunables`] (what the allocator is told), `stage` (how far that is), [`start`] (how it begins in
//! the process of the program).
//!
//! # Why
//! A library that the loader brings in (`LD_PRELOAD`), not a process that attaches: what it compiles
//! calls and is called by the program, so it has to be in its address space; and what attaches by
//! `ptrace` needs rights that containers take away. Not linked by default: a program that is built
//! with room and bitcode costs nothing until somebody wants it live. One that links the library
//! has the same.

#![deny(missing_docs)]

mod acting;
mod allocation;
mod arguments;
pub mod asking;
mod callers;
pub mod choose;
pub mod control;
pub mod entries;
mod exchanges;
pub mod explain;
mod force;
pub mod function;
pub mod known;
pub mod locked;
mod meaning;
mod merged;
mod misfits;
pub mod program;
mod question;
mod reach;
mod reason;
mod refused;
mod seats;
mod sent;
pub mod session;
pub mod settings;
mod stage;
pub mod start;
pub mod swap;
pub mod tunables;
mod variables;
