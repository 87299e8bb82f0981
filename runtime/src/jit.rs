//! The handle of a session, and its settings.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use uruk_heap::{BackingChoice, HeapConfig};
use uruk_profiler::{Choice as SamplingChoice, Sizes as SamplingSizes};
use uruk_reclaim::{Config as ReclaimConfig, Kind as ReclaimKind};
use uruk_stubs::FailureHandler;
use uruk_tiering::{Config as PolicyConfig, Tier};

use crate::core::Core;
use crate::dylib::Dylib;
use crate::error::Error;
#[cfg(doc)]
use crate::event::Event;
use crate::event::Listener;
use crate::func::{Func, Signature};
use crate::reclaim::RegisteredStack;
use crate::room;
use crate::service;
#[cfg(doc)]
use crate::stats::MemoryStats;
use crate::stats::Stats;
use crate::tiers::{TierSettings, Tiers};
use crate::tools::{ToolSettings, Tools};

/// Settings of a session; made by [`Jit::builder`].
#[derive(Clone, Default)]
pub struct JitBuilder {
    jobs: Option<usize>,
    pub(crate) heap: HeapConfig,
    on_failure: Option<FailureHandler>,
    pub(crate) tiers: TierSettings,
    tools: ToolSettings,
    reclaim: ReclaimConfig,
    listeners: Vec<Listener>,
    replacements_kept: Option<usize>,
    pub(crate) untrusted: Option<crate::untrusted::Untrusted>,
}

impl fmt::Debug for JitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitBuilder")
            .field("jobs", &self.jobs)
            .field("heap", &self.heap)
            .field("tiers", &self.tiers)
            .finish_non_exhaustive()
    }
}

impl JitBuilder {
    /// Threads that compile for first calls, at least one. Default: the number of CPUs.
    /// As many again, but for half of the CPUs at most, compile better versions at low
    /// priority.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> JitBuilder {
        self.jobs = Some(jobs);
        self
    }

    /// Limit of the bytes handed out for code and data, in all.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> JitBuilder {
        self.heap.limit = Some(bytes);
        self
    }

    /// Settings of code memory.
    #[must_use]
    pub fn heap(mut self, heap: HeapConfig) -> JitBuilder {
        self.heap = heap;
        self
    }

    /// What a call does whose function cannot be compiled. The handler runs on the
    /// calling thread, maybe in a signal handler; the call continues at the address it
    /// returns, with the call's own arguments. By default a line is written to standard
    /// error and the process ends. [`Jit::compile`] tells the error itself.
    #[must_use]
    pub fn on_failure(mut self, handler: FailureHandler) -> JitBuilder {
        self.on_failure = Some(handler);
        self
    }

    /// How functions are compiled over their life. Default: [`Tiers::Auto`].
    #[must_use]
    pub fn tiers(mut self, tiers: Tiers) -> JitBuilder {
        self.tiers.tiers = tiers;
        self
    }

    /// Lets tiers 2 and 3 fuse a multiplication and an addition, where the source
    /// allowed it. Off by default: results then are the same bits in every tier.
    #[must_use]
    pub fn contract(mut self, contract: bool) -> JitBuilder {
        self.tiers.contract = contract;
        self
    }

    /// Where samples come from that rank functions, under [`Tiers::Auto`]. Default: the first
    /// source that works.
    #[must_use]
    pub fn sampling(mut self, sampling: SamplingChoice) -> JitBuilder {
        self.tiers.sampling = sampling;
        self
    }

    /// Sizes of the rings and tables of samples; what does not fit is counted.
    #[must_use]
    pub fn sampling_sizes(mut self, sizes: SamplingSizes) -> JitBuilder {
        self.tiers.sizes = sizes;
        self
    }

    /// Settings of the tiering policy. `jobs` and `cpus` are set to what this session
    /// has.
    #[must_use]
    pub fn policy(mut self, policy: PolicyConfig) -> JitBuilder {
        self.tiers.policy = policy;
        self
    }

    /// Which of other people's tools are told about compiled code. Default: none.
    #[must_use]
    pub fn tools(mut self, tools: ToolSettings) -> JitBuilder {
        self.tools = tools;
        self
    }

    /// When retired code is freed and live code is moved together.
    #[must_use]
    pub fn reclaim(mut self, reclaim: ReclaimConfig) -> JitBuilder {
        self.reclaim = reclaim;
        self
    }

    /// Replacements that are kept to be [rolled back](Jit::rollback), with the code they
    /// replaced. Default: 8.
    #[must_use]
    pub fn replacements_kept(mut self, count: usize) -> JitBuilder {
        self.replacements_kept = Some(count);
        self
    }

    /// Adds someone to be told of every [`Event`].
    #[must_use]
    pub fn on_event(mut self, listener: Listener) -> JitBuilder {
        self.listeners.push(listener);
        self
    }

    /// The settings of the tiering policy that a session would have: with its `jobs` and
    /// this machine's `cpus`.
    pub fn effective_policy(&self) -> PolicyConfig {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(cpus).max(1);
        PolicyConfig {
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            // Half of the processors: the program has something to do, too.
            jobs: u32::try_from(jobs.min(cpus.div_ceil(2))).unwrap_or(u32::MAX),
            ..self.tiers.policy.clone()
        }
    }

    /// Reserves memory and starts the compile threads.
    ///
    /// # Errors
    /// No address space ([`Error::Room`] where it is limited), no permission for executable memory, no thread.
    pub fn build(self) -> Result<Jit, Error> {
        let policy = self.effective_policy();
        let jobs = self.jobs.unwrap_or(policy.cpus as usize).max(1);
        let mut tiers = self.tiers;
        tiers.policy = policy;
        let mut heap = self.heap;
        let private = self.tools.gdb || self.tools.perf_map;
        if private && heap.backing == BackingChoice::Auto {
            // A debugger writes breakpoints through the kernel, which copies pages of
            // private memory for it and refuses those of a shared file. perf asks a map
            // for the names of private memory only, a file for those of others.
            heap.backing = BackingChoice::Flip;
        }
        let tools = Tools::new(&self.tools)?;
        // Until the session is known to whoever forks.
        let _pass = service::begin();
        room::check()?;
        let core = Core::new(heap, jobs, tiers, tools, self.reclaim)?;
        core.distrust(self.untrusted);
        if let Some(count) = self.replacements_kept {
            core.replacing.keep_sets(count);
        }
        for listener in self.listeners {
            core.events.listen(listener);
        }
        if let Some(handler) = self.on_failure {
            core.stubs.set_failure_handler(handler);
        }
        service::start(&core)?;
        Ok(Jit {
            shared: Arc::new(Shared { core }),
        })
    }
}

/// A session: cheap to clone, usable from any thread.
///
/// Its memory lives as long as the last handle or function of it; after that,
/// calling an address obtained from it is undefined. Its destructors, and what its code
/// registered to be called at the end of the process, run then, as when all is
/// [removed](crate::Tracker::remove).
///
/// ```
/// use uruk::Jit;
///
/// let jit = Jit::new()?;
/// jit.add_ir("m", "define i32 @add(i32 %a, i32 %b) {
///   %sum = add i32 %a, %b
///   ret i32 %sum
/// }")?;
/// // SAFETY: `add` is the function above and does nothing but add.
/// let add = unsafe { jit.function::<extern "C" fn(i32, i32) -> i32>("add")? };
/// assert_eq!(add.call(2, 40), 42);
/// # Ok::<(), uruk::Error>(())
/// ```
#[derive(Clone)]
pub struct Jit {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.leave_all();
        self.core.stop();
    }
}

impl Jit {
    /// A session with default settings.
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn new() -> Result<Jit, Error> {
        Jit::builder().build()
    }

    /// Settings to start from.
    pub fn builder() -> JitBuilder {
        JitBuilder::default()
    }

    /// The dylib that modules go to which are added through the handle itself.
    pub fn main(&self) -> Dylib {
        Dylib {
            jit: self.clone(),
            dylib: self.shared.core.main.clone(),
        }
    }

    /// A new dylib. It searches itself, then the process; see
    /// [`Dylib::add_to_link_order`] for others.
    ///
    /// # Errors
    /// The name is taken.
    pub fn create_dylib(&self, name: &str) -> Result<Dylib, Error> {
        let _busy = service::enter();
        let dylib = self.shared.core.names.create_dylib(name)?;
        Ok(Dylib {
            jit: self.clone(),
            dylib,
        })
    }

    /// Adds a shared library whose symbols JIT'd code may use.
    ///
    /// # Errors
    /// The dynamic loader's message.
    pub fn add_library(&self, name: &str) -> Result<(), Error> {
        let _busy = service::enter();
        self.shared.core.add_library(name)
    }

    /// [`Dylib::add_bitcode`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_bitcode(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.main().add_bitcode(name, bytes)
    }

    /// [`Dylib::add_ir`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_ir(&self, name: &str, text: &str) -> Result<(), Error> {
        self.main().add_ir(name, text)
    }

    /// [`Dylib::add_module`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_module(&self, module: &inkwell::module::Module<'_>) -> Result<(), Error> {
        self.main().add_module(module)
    }

    /// [`Dylib::add_object`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_object(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.main().add_object(name, bytes)
    }

    /// [`Dylib::add_file`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_file(&self, path: &Path) -> Result<(), Error> {
        self.main().add_file(path)
    }

    /// [`Dylib::define`] of [`Jit::main`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn define(&self, name: &str, address: *const ()) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.main().define(name, address) }
    }

    /// [`Dylib::lookup`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn lookup(&self, name: &str) -> Result<u64, Error> {
        self.main().lookup(name)
    }

    /// [`Dylib::function`] of [`Jit::main`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn function<F: Signature>(&self, name: &str) -> Result<Func<F>, Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.main().function(name) }
    }

    /// [`Dylib::compile`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn compile(&self, name: &str) -> Result<(), Error> {
        self.main().compile(name)
    }

    /// [`Dylib::compile_at`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn compile_at(&self, name: &str, tier: Tier) -> Result<(), Error> {
        self.main().compile_at(name, tier)
    }

    /// [`Dylib::pin`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn pin(&self, name: &str, tier: Option<Tier>) -> Result<(), Error> {
        self.main().pin(name, tier)
    }

    /// [`Dylib::tier`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn tier(&self, name: &str) -> Result<Option<Tier>, Error> {
        self.main().tier(name)
    }

    /// Starts no better versions by itself until [`Jit::resume_tiers`]; counting and
    /// sampling go on, and what was asked for or pinned is still compiled.
    pub fn pause_tiers(&self) {
        let _busy = service::enter();
        self.shared.core.tiers.pause(true);
    }

    /// Ends [`Jit::pause_tiers`].
    pub fn resume_tiers(&self) {
        let _busy = service::enter();
        self.shared.core.tiers.pause(false);
    }

    /// Runs the constructors of everything added since the last call, with no
    /// arguments, in the order it was added.
    ///
    /// # Safety
    /// As calling any function of the modules.
    pub unsafe fn initialize(&self) {
        let core = &self.shared.core;
        let pending = {
            let _busy = service::enter();
            std::mem::take(&mut *core.pending.lock().unwrap_or_else(PoisonError::into_inner))
        };
        for hooks in pending.into_values() {
            // SAFETY: by the caller's promise; an empty argument vector ends itself.
            unsafe {
                hooks.resolve_ifuncs(core);
                hooks.run_constructors(0, [std::ptr::null()].as_ptr(), [std::ptr::null()].as_ptr());
            }
            core.note_destructors(hooks.image, &hooks.life, hooks.destructors);
        }
    }

    /// Runs the destructors of what [`Jit::initialize`] initialized, latest first. What is removed
    /// before, or not until the session ends, has them run then
    /// ([`Tracker::remove`](crate::Tracker::remove)).
    ///
    /// # Safety
    /// As calling any function of the modules.
    pub unsafe fn deinitialize(&self) {
        // Each is taken out before it runs: one may come back here, or remove others.
        while let Some(address) = self.shared.core.next_destructor(|_, _| true) {
            // SAFETY: by the caller's promise.
            unsafe { uruk_stubs::call_void(address) };
        }
    }

    /// Frees retired code now, and with [`ReclaimKind::Evacuate`] moves live code
    /// together, hot first. Waits until that is done, at most for `limit`; true if it is.
    /// What threads may return into stays, see [`MemoryStats::pins`]. By itself it
    /// happens as [`JitBuilder::reclaim`] says.
    pub fn reclaim(&self, kind: ReclaimKind, limit: Duration) -> bool {
        self.shared.core.reclaim_now(kind, limit)
    }

    /// Says that code of the session may run on `stack` while no thread of the process is
    /// on it, as on a fiber's: what is to be returned into there stays. Threads' own
    /// stacks, alternate signal stacks, and in JIT'd code those of `makecontext`, are
    /// known. Usable on any thread.
    ///
    /// For code that switches stacks itself all memory is searched, or not: [`Stacks`](crate::Stacks).
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let memory = vec![0u64; 8192];
    /// let range = memory.as_ptr_range();
    /// // SAFETY: the memory outlives the registration.
    /// let held = unsafe { jit.register_stack(range.start as u64..range.end as u64)? };
    /// drop(held);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. The memory stays readable until what is returned is dropped.
    /// 2. It is dropped only when nobody goes on to run on the stack what began there.
    ///
    /// # Errors
    /// A range that is empty or not aligned to 8 bytes, 4,096 stacks are registered
    /// already, or no signal is left for the scan of threads.
    pub unsafe fn register_stack(&self, stack: Range<u64>) -> Result<RegisteredStack, Error> {
        let core = &self.shared.core;
        let _busy = service::enter();
        RegisteredStack::new(core, stack)
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        let _busy = service::enter();
        self.shared.core.stats()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }
}
