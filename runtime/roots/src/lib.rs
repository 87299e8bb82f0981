//! Finds code that threads may still execute or return into.
//!
//! The question is asked for ranges in one region of addresses: which of them does any
//! thread of the process point into, from its registers, its red zone or its stacks?
//! The answer is conservative. Every word that could be a return address counts as one;
//! a false answer keeps code longer, a miss would free code that runs. The threads are
//! scanned one by one while the others go on; there is no moment at which all stand.
//!
//! # Why a ragged scan is a proof
//! The caller has removed the ranges from everything that leads into them except stacks and registers.
//! From then on only a call from code in a range makes a return address into it, so only a thread that
//! has the range on its stack or in its program counter already. A thread found without one stays
//! without. Threads are listed until a list holds only scanned ones; a thread made since comes from one
//! that was clean. `setjmp`'s buffers need no scan: `longjmp` is allowed only while the function that
//! called `setjmp` has not returned, and that has a return address on the stack whenever other code
//! runs. Stacks without a running thread (fibers) are registered, or searched for in all memory
//! ([`Roots::search_memory`]).
//!
//! The proof is that no thread executes a range, not that none reads it: a register that keeps an
//! address as data may be invisible (`look`). Data that code outside of a range may read must not be in
//! it.
//!
//! A fiber may be handed from thread to thread during a scan. Its stack is read after all threads. Code
//! on it that ran when its thread was scanned and was suspended since has left its return address there.
//! That holds also if it runs again by then: the word stays below the stack pointer until the same frame
//! makes another call. Code that moves its stack pointer between calls (`alloca`) while it is handed
//! around during one scan is not covered; such programs must scan when fibers rest.
//!
//! # Roots, and the test in `tests/` that fails without each
//! | root | left out by | test that fails |
//! |---|---|---|
//! | stack of a sleeping thread | not walking in `Looker::look_once` | `asleep_for_long` |
//! | arguments of its system call | not noting `words` there | `return_address_of_vfork`, `register_of_a_sleeper` |
//! | stack of a running thread | not walking in `handler::answer` | `running_in_a_loop` |
//! | registers of a running thread | not noting `gregs` | `register_only` |
//! | vector registers | no `vector_registers` | `vector_register_only` |
//! | red zone | `RED_ZONE` = 0 | `red_zone` |
//! | stack below an alternate stack | no `add` at a mark in `scan_span` | `alternate_stack`, `nested_handlers` |
//! | threads made meanwhile | one listing | `threads_made_meanwhile` |
//! | registered stacks | no `registered` | `registered_fiber` |
//! | stacks of `makecontext` | no `contexts` | case `contexts.c` |
//! | unregistered stacks | no `memory` in `run` | `an_unregistered_stack_is_found_in_memory`, cases `own_stacks*.c` |
//! | processes that share the memory | no `sharers` in `run` | `a_process_on_this_memory`, case `library_process.c` |
//! | own stack of a thread that left it | no `own` in `walk` | `left_its_own_stack`, case `contexts.c` |
//! | stack that overflowed | no `own` in `walk` | case `stack_overflow_caught.c` |
//! | a counted thread inside of a call | `outside` without `count` | `counted_threads_are_left_alone_outside` |
//! | the caller | no `scan_caller` | `caller_counts` |
//! | end of a range | `start..end` in `kept_by` | `ends_count_and_bad_lists_are_errors` |
//! | repeated calls | no `repair` | `a_scan_storm_interrupts_no_call` |
//! | calls of glibc with loads | no `without_load` | case `interrupted_waits.c` |
//! | calls by `syscall` | the C library's | case `interrupted_waits.c` |
//! | calls restarted after a stop | no `SYS_restart_syscall` in `repair` | case `stopped_waits.c` |
//!
//! # Invariants
//! - A thread that sleeps in a system call is never signalled.
//! - A complete report has scanned every thread and registered stack. An incomplete one names the
//!   missing thread with the reason, and keeps everything.
//! - A signal that comes after the program removed its handler, or after `exec`, is ignored (`shadow`);
//!   one that would be harmful is not sent (`asking`).
//! - The handler uses no stack of the thread's, takes no lock, allocates nothing, uses no thread-local
//!   and no `errno`.
//! - A late answer never meets another request (`slot`, model-checked).
//!
//! # Map, in reading order
//! `report`: request and answer. `hits`: the words found. `scratch`: memory for copies of stacks.
//! `maps`: ends of stacks. `walk`: one thread's stacks. `words`: the loop over words. `task`: reads
//! `/proc`. `look`: a sleeping thread. `frames`, `tables`: its return addresses by unwind tables.
//! `slot`: request and answer. `shadow`: the signal, and the program's action for it. `asking`: whether
//! it may be sent. `handler`, `rewind`: the signal. `settle`: running threads. `stacks`, `contexts`,
//! `unsearched`, `exempt`, `entries`, `turn`: tables. `memory`, `resumable`: stacks that were not
//! registered. `roots`, `caller`: the whole scan. `barrier`: `membarrier`. `sharers`: processes on this
//! memory.

#![deny(missing_docs)]
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod asking;
#[cfg(not(loom))]
mod barrier;
#[cfg(not(loom))]
mod caller;
#[cfg(not(loom))]
mod contexts;
mod entries;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod exempt;
#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod handler;
#[cfg(not(loom))]
mod hits;
#[cfg(not(loom))]
mod look;
#[cfg(not(loom))]
mod maps;
#[cfg(not(loom))]
mod mask;
#[cfg(not(loom))]
mod memory;
#[cfg(all(loom, test))]
mod model;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod resumable;
#[cfg(not(loom))]
mod rewind;
#[cfg(not(loom))]
mod roots;
#[cfg(not(loom))]
mod scratch;
#[cfg(not(loom))]
mod settle;
#[cfg(not(loom))]
mod shadow;
#[cfg(not(loom))]
mod sharers;
mod slot;
#[cfg(not(loom))]
mod stacks;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod tables;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod turn;
#[cfg(not(loom))]
mod unsearched;
#[cfg(not(loom))]
mod walk;
#[cfg(not(loom))]
mod words;

#[cfg(not(loom))]
pub use asking::{mask_changed, set_alternate_stack};
#[cfg(not(loom))]
pub use barrier::{BarrierError, fence_all_threads, serialize_cores};
#[cfg(not(loom))]
pub use contexts::note_context_stack;
#[cfg(not(loom))]
pub use entries::{CountedThread, Inside};
#[cfg(not(loom))]
pub use error::RootsError;
#[cfg(not(loom))]
pub use exempt::Exemption;
#[cfg(not(loom))]
pub use frames::learn_contexts;
#[cfg(not(loom))]
pub use maps::note_fork;
#[cfg(not(loom))]
pub use memory::MemoryReport;
#[cfg(not(loom))]
pub use report::{How, Report, ScanTrouble, StackReport, ThreadReport, Wanted, Why};
#[cfg(not(loom))]
pub use rewind::program_syscall;
#[cfg(not(loom))]
pub use roots::{Config, Roots};
#[cfg(not(loom))]
pub use shadow::set_action;
#[cfg(not(loom))]
pub use stacks::StackId;
#[cfg(not(loom))]
pub use sys::end_cycles;
#[cfg(not(loom))]
pub use tables::RowsOf;

#[cfg(not(loom))]
pub use unsearched::{leave_unsearched, search_again};
