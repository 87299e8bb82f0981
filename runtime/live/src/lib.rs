//! Native programs as tier 0: a library that is loaded into a program which carries its bitcode, finds
//! its hot functions by samples, and compiles them again.
//!
//! The program was built by `uruk cc`, or by clang with the same options. Its functions begin in native
//! code. Samples find hot ones. They are compiled from the bitcode for this processor, against the
//! program's own variables and functions, and the native entry becomes a jump to the function's stub.
//! Before that nothing is changed, and every change can be undone.
//!
//! Reading order: [`settings`], [`program`] (the files of the process), [`choose`] (functions that may
//! be compiled again, as pure decisions), `variables` (their references), `reach` (bodies in the native
//! code of other functions), `reason` and `refusals` (reasons against compiling) and [`known`] (the facts behind
//! choices), `arguments` (arguments that native code takes), `allocation` (programs that stay native),
//! [`entries`] (writes to text), [`locked`], [`function`], [`session`], [`explain`], [`swap`], `meaning`
//! (names of new code), `callers` (native callers that new bodies do not fit), `merged` (functions with
//! the same native code), `refused` (reasons against an exchange), `exchanges` (exchanges made so far),
//! [`control`], [`asking`], `seats` and `question` (`uruk swap`), `force` (tests), [`tunables`]
//! (settings of the allocator), `stage` (the session's stage), [`start`] (its start in the process of
//! the program).
//!
//! # Why
//! The library is brought in by the loader (`LD_PRELOAD`), not by a process that attaches. Its compiled
//! code calls and is called by the program, so it has to be in its address space; and attaching by
//! `ptrace` needs rights that containers take away. It is not linked by default: a program built with
//! room and bitcode costs nothing until a user wants it live. Linking the library has the same effect.

#![deny(missing_docs)]

mod acting;
mod allocation;
mod arguments;
pub mod asking;
mod callers;
pub mod choose;
mod closure;
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
pub mod names;
pub mod program;
mod question;
mod reach;
mod reason;
mod refusals;
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
mod versions;
