//! ORC's contract, behaviour by behaviour, through the library alone: a module per chapter, a
//! test per behaviour, named after it.
//!
//! These behaviours have their tests elsewhere (`demos/cases` are programs that run as they do
//! natively):
//!
//! | behaviour | tests |
//! |---|---|
//! | functions of units: stubs, first calls, linked objects | `units.rs` |
//! | definitions that come late, lazy archives, data that waits | `any_order.rs`, `waiting.rs` |
//! | hidden names, thread-locals over dylibs, handles of other sessions | `names.rs` |
//! | weak and COMDAT definitions of modules, over dylibs and removals | `weak.rs`, `weak_dylibs.rs`, `weak_removal.rs` |
//! | names across modules and dylibs | `cross_modules.rs`, `library.rs` |
//! | removal of modules, of dylibs that others search | `removal.rs`, `removal_memory.rs` |
//! | constructors and destructors | `library.rs`, `exit_destructors.rs`; cases `constructors`, `static_order` |
//! | `atexit` by module | `exit_handlers.rs`, `exit_threads.rs`; case `atexit` |
//! | thread-locals | cases `thread_locals`, `thread_local_models`, `thread_local` |
//! | exceptions and backtraces through JIT'd frames | cases `exceptions`, `unwinding`, `throw_through_library`, `rust_panics` |
//! | relocations, GOT and PLT, code models, ifuncs | `link/tests`; cases `code_models`, `ifunc`, `sections` |
//! | GDB, perf map, jitdump | `tools/tests/tools.rs` |
//! | panics of listeners, failing compiles | `panics.rs`, `library.rs` |
//! | shapes of the dependence graph: coalescing, re-emission, cost | `session/tests/graph.rs` |

mod aliases;
mod bad_input;
mod defining;
mod dependences;
mod errors;
mod generators;
mod link_order;
mod lookups;
mod names_and_flags;
mod responsibility;
mod runtime;
mod tables;
mod trackers;
