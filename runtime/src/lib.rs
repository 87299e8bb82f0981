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
//! Exceptions and panics pass through JIT'd frames where libgcc is a shared library, as by
//! default; a word of it is written to for that. An executable can export `_Unwind_Find_FDE`
//! instead and forward it to [`find_fde`]; one that has libgcc linked into it has to.
//!
//! | to | |
//! |---|---|
//! | add modules, call functions | [`Jit`], [`Func`], [`DynFunc`] where types are known at run time |
//! | let guests call the host | [`Jit::define_fn`], [`HostFn`], [`HostError`] |
//! | have faults, deadlines and interrupts be values | [`Func::call_guarded`], [`Trap`], [`GuestThread`] |
//! | write a function when it is first called | [`Dylib::define_lazy`], [`Unit`], [`Generator`] |
//! | have several tables of symbols, and remove what was added | [`Dylib`], [`Tracker`] |
//! | exchange functions while they run | [`Dylib::replace`], [`Replacement`] |
//! | choose how it is compiled | [`JitBuilder`], [`Tiers`], [`Dylib::pin`] |
//! | see what happens | [`Jit::stats`], [`Event`], [`ToolSettings`], [`Dylib::disassemble`] |
//! | run a whole program | [`Program`] |

// Rooms, and what may import from what: ARCHITECTURE.md. Each folder's `mod.rs` is its map.

#![deny(missing_docs)]

mod api;
mod calls;
mod code;
mod error;
mod events;
mod exits;
mod fork;
mod guarded;
mod guest;
#[cfg(doctest)]
mod guide;
mod host;
mod load;
mod loops;
mod program;
mod reclaim;
mod removal;
mod replace;
mod session;
mod speculation;
mod stacks;
mod tiers;
mod told;
mod tuning;
mod units;
mod version;

pub use crate::api::builder::JitBuilder;
pub use crate::api::dylib::Dylib;
pub use crate::api::func::{Func, FuncOnlyThread, LimitedCall};
pub use crate::api::generator::{Generator, GeneratorId, GeneratorRequest, LookupKind, Need};
pub use crate::api::improve::{ReoptimizeRequest, Reoptimizer};
pub use crate::api::jit::{Jit, WeakJit};
pub use crate::api::lookup::{
    DylibId, Found, Lookup, LookupFuture, LookupResult, Required, StillMissing, SymbolState,
    Visibility,
};
pub use crate::api::native::{InlinedCopy, NativeCode};
pub use crate::api::sandbox::prepare_sandbox;
pub use crate::api::seeing::FunctionProfile;
pub use crate::api::symbols::Alias;
pub use crate::api::tracker::{Removal, Tracker};
pub use crate::api::unit::{
    DependenceGroup, Flags, Interface, Resource, Responsibility, Symbol, Unit,
};
pub use crate::calls::dynamic::{DynFunc, Val};
pub use crate::calls::failed::{FailedCall, FailedCallHandler, FailureHandler};
pub use crate::calls::host::{HostFn, HostFunction, HostResult};
pub use crate::calls::types::{Extend, FunctionType, Leaf, ValueType};
pub use crate::calls::value::{Field, Signature, Value};
pub use crate::code::tools::ToolSettings;
pub use crate::error::input::Rejection;
pub use crate::error::replace::{Activation, ReplaceError};
pub use crate::error::trap::{Access, Frame, HostError, Source, Trap, TrapKind};
pub use crate::error::{EXIT_FAILURE, Error, Missing, Refusal};
pub use crate::events::baseline::BaselineStats;
pub use crate::events::evictions::EvictionStats;
pub use crate::events::memory::{MemoryOwner, MemoryPurpose, MemoryReport, MemoryRow};
pub use crate::events::staying::{Staying, StayingStats};
pub use crate::events::tier_stats::TierStats;
pub use crate::events::{Event, Hit, Tier};
pub use crate::exits::register_exit_handler;
pub use crate::guarded::asked::{FaultAnswer, FaultHandler, MemoryFault};
pub use crate::guarded::guard::{covered, raise_error};
pub use crate::guarded::interrupt::GuestThread;
pub use crate::guest::preempt::gates::{GATE_COUNT, GATES};
pub use crate::host::room::{needs_low_addresses, needs_near_libraries};
pub use crate::load::untrusted::InputLimits;
pub use crate::loops::ContinuationStats;
pub use crate::program::run::{Program, ProgramOptions};
pub use crate::reclaim::RegisteredStack;
pub use crate::replace::loops::{LoopStays, OldLoop};
pub use crate::replace::rollback::{Rollback, RolledBack};
pub use crate::replace::{Replaced, Replacement};
pub use crate::speculation::SpeculationStats;
pub use crate::stacks::foreign::note_copied_text;
pub use crate::told::coverage::{BaselineCoverage, baseline_coverage};
pub use crate::told::parts::PartStats;
pub use crate::told::stats::{MemoryStats, Stats, StatsFormat};
pub use crate::tuning::views::{TrialView, TuningStats, TuningView};
pub use crate::units::{LazyObject, Members, ObjectBuilder, Reference};
pub use crate::version::baseline::Baseline;
pub use crate::version::layers::{
    DirectoryCache, IrUnit, LinkGraph, LinkPass, ObjectCache, ObjectTransform, Transform,
};
pub use crate::version::partition::{ChoosePart, Partition};
pub use inkwell;
pub use uruk_base::parts::Spent;
pub use uruk_base::{Change, FunctionId, Inlining, Part, Start, Variant, Vectors, VersionId};
pub use uruk_base::{CompiledBy, Level, Mode, Tiers};
pub use uruk_codegen::Reason as LoopReason;
pub use uruk_codegen::{CodegenError, host_cpu, llvm_version};
pub use uruk_heap::{BackingChoice, Freed, HeapConfig, HeapError, Place, Room};
pub use uruk_link::LinkError;
pub use uruk_profiler::{
    Choice as SamplingChoice, Settings as SamplingSettings, Sizes as SamplingSizes,
};
pub use uruk_reclaim::{Config as ReclaimConfig, Kind as ReclaimKind, Stacks};
pub use uruk_session::{Dump, DylibDump, Names, SessionError, SymbolDump, TrackerKey};
pub use uruk_stubs::StubError;
pub use uruk_tiering::Config as PolicyConfig;
pub use uruk_tiering::tuning::{Interval as TuningInterval, TuningUnit, Verdict as TuningVerdict};
pub use uruk_unwind::{DwarfEhBases, find_fde};

/// Functions that a library which is loaded into a native program exports under names of the C
/// library, before that one. Children of these calls find no lock of the allocator held by a thread of
/// the runtime, and no call made by `syscall` ends with `EINTR` for a signal of the runtime. JIT'd code
/// gets them in any case.
pub mod interposed {
    pub use crate::host::processes::guest_clone as clone;
    pub use crate::host::processes::guest_quiet_fork as fork_quietly;
    pub use crate::host::processes::guest_syscall as syscall;
    pub use crate::host::sandbox::guest_prctl as prctl;
}

/// Support of `uruk live`, which lives in native programs. Not a part of the API: it changes with that.
#[doc(hidden)]
pub mod live {
    pub use crate::api::native::{
        NativeFiles, enter_program, look_at_main_thread, on_fork_in_child, on_own_threads_end,
        own_threads_end, spawn_own, uncopied,
    };
    pub use crate::load::untrusted::read_apart;
    pub use uruk_codegen::native as rebound;
}
