//! A lazy JIT runtime with hot patching for LLVM IR.
//!
//! Add modules to a [`Jit`]; every function has its final address at once and is
//! compiled when it is first called. [`Program`] runs whole programs, as the
//! `uruk` command does.
//!
//! ```
//! let jit = uruk::Jit::new()?;
//! jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
//! // SAFETY: `twice` is the function above.
//! let twice = unsafe { jit.function::<extern "C" fn(i64) -> i64>("twice")? };
//! assert_eq!(twice.call(21), 42);
//! # Ok::<(), uruk::Error>(())
//! ```
//!
//! An executable that lets exceptions or panics pass through JIT'd frames exports
//! `_Unwind_Find_FDE` and forwards it to [`find_fde`].
//!
//! Reading order: [`jit`](Jit) (the handle), `load` and `bind` (files to image),
//! `materialize` (image to code), `versions` (a version made and published), `service` (first
//! calls, fork), `tiers` and `background` (better versions), `sampling`, `guided`, `cross`
//! (bodies of other modules), `replace`, `reclaim`, `removal`, `life`, `own`, `program` (a whole program),
//! `guest` (what its code gets from us), `event`, `stats` and `recording` (what is told).

#![deny(missing_docs)]

mod background;
mod bind;
mod blocks;
mod bodies;
mod bonds;
mod constants;
mod core;
mod counts;
mod cross;
mod diary;
mod disassemble;
mod drafts;
mod dylib;
mod error;
mod event;
mod exports;
mod func;
mod futex;
#[doc(hidden)]
pub mod fuzz;
mod guest;
mod guided;
mod hooks;
mod image;
mod jit;
mod jobs;
mod labels;
mod life;
mod load;
mod materialize;
mod names;
mod objects;
mod own;
mod panics;
mod process;
mod program;
mod rare;
mod reclaim;
mod recording;
mod records;
mod removal;
mod removed;
mod replace;
mod room;
mod sacrificial;
mod sampling;
mod service;
mod shield;
mod stats;
mod switches;
mod thread;
mod tiers;
mod tools;
mod tracker;
mod untrusted;
mod versions;
mod warmth;
mod weak;

pub use crate::dylib::Dylib;
pub use crate::error::{Error, Missing};
pub use crate::event::{Event, Hit, Listener, Tier};
pub use crate::func::{Func, FuncOnlyThread, Signature, Value};
pub use crate::guest::exit::register_exit_handler;
pub use crate::jit::{Jit, JitBuilder};
pub use crate::program::{Mode, Program, ProgramOptions};
pub use crate::reclaim::RegisteredStack;
pub use crate::replace::{Activation, Level, ReplaceError, Replaced, Replacement};
pub use crate::room::needs_low_addresses;
pub use crate::stats::{MemoryStats, Stats, StatsFormat, TierStats};
pub use crate::tiers::Tiers;
pub use crate::tools::ToolSettings;
pub use crate::tracker::{Removal, Tracker};
pub use crate::untrusted::{Rejection, Untrusted};
pub use inkwell;
pub use uruk_codegen::{CodegenError, llvm_version};
pub use uruk_heap::{BackingChoice, Freed, HeapConfig, HeapError, Place, Room};
pub use uruk_link::LinkError;
pub use uruk_profiler::{
    Choice as SamplingChoice, Settings as SamplingSettings, Sizes as SamplingSizes,
};
pub use uruk_reclaim::{Config as ReclaimConfig, Kind as ReclaimKind, Stacks};
pub use uruk_session::SessionError;
pub use uruk_stubs::{FailureHandler, FunctionId};
pub use uruk_tiering::Config as PolicyConfig;
pub use uruk_unwind::{DwarfEhBases, find_fde};

/// Exit status of the command when a program could not be loaded, compiled or
/// linked; a program's own status is passed on unchanged.
pub const EXIT_FAILURE: i32 = 125;
