//! Settings of a session.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_base::Part;
use uruk_base::parts::Spent;
use uruk_heap::{BackingChoice, HeapConfig};
use uruk_profiler::{Choice as SamplingChoice, Sizes as SamplingSizes};
use uruk_reclaim::Config as ReclaimConfig;
use uruk_session::SessionError;
use uruk_tiering::Config as PolicyConfig;

use crate::api::jit::Jit;
use crate::calls::failed::{FailedCallHandler, FailureHandler, OnFailure};
use crate::code::names::Reporter;
use crate::code::tools::{ToolSettings, Tools};
use crate::error::Error;
use crate::events::{Event, Listener};
use crate::fork::{self, gate};
use crate::guarded::asked::{FaultHandler, HandlerRegistration};
use crate::guarded::interrupt;
use crate::guest::{stacks, unwinding};
use crate::host::clock::process_time;
use crate::host::clock::thread_time;
use crate::host::room;
use crate::host::{listed, llvm};
use crate::session::Session;
use crate::tiers::settings::TierSettings;
use crate::told::recording::recorder;
use crate::version::baseline::Baseline;
use crate::version::layers::Layers;
use uruk_base::Tiers;

/// Settings of a session; made by [`Jit::builder`].
#[derive(Clone, Default)]
pub struct JitBuilder {
    jobs: Option<usize>,
    pub(crate) heap: HeapConfig,
    on_failure: OnFailure,
    pub(super) on_fault: Option<FaultHandler>,
    pub(crate) tiers: TierSettings,
    tools: ToolSettings,
    reclaim: ReclaimConfig,
    listeners: Vec<Listener>,
    replacements_kept: Option<usize>,
    time_parts: bool,
    late_llvm: bool,
    list_images: bool,
    executable_stacks: bool,
    pub(crate) record: bool,
    reporter: Option<Reporter>,
    pub(crate) layers: Layers,
    pub(crate) untrusted: Option<crate::load::untrusted::InputLimits>,
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

/// Upper limit of compile threads: more would wait for each other.
const MOST_JOBS: usize = 256;

impl JitBuilder {
    /// Threads that compile for first calls, at least one and at most 256. Default: the number of CPUs.
    /// As many again, but for half of the CPUs at most, compile better versions at low
    /// priority.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> JitBuilder {
        self.jobs = Some(jobs);
        self
    }

    /// Limits the total bytes handed out for code and data.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> JitBuilder {
        self.heap.limit = Some(bytes);
        self
    }

    /// Limits the bytes of code of functions. Beyond it, the least recently used code is evicted
    /// until a fifth of the budget is free; the next call of an evicted function compiles it again.
    /// The budget counts code of IR functions that calls reach. It does not count code of object
    /// files and units, nor replaced code that is not freed yet ([`Jit::memory`]). Pinned
    /// functions, and those whose labels' addresses the program may hold, keep their code. See
    /// [`EvictionStats`].
    ///
    /// ```
    /// let jit = uruk::Jit::builder().code_budget(64 << 20).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// // SAFETY: `one` is the function above.
    /// let one = unsafe { jit.function::<extern "C" fn() -> i32>("one")? };
    /// assert_eq!(one.call(), 1);
    /// assert!(jit.main().evict("one")?);
    /// assert_eq!((jit.main().tier("one")?, one.call()), (None, 1));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// [`EvictionStats`]: crate::EvictionStats
    #[must_use]
    pub fn code_budget(mut self, bytes: u64) -> JitBuilder {
        self.tiers.code_budget = Some(bytes);
        self
    }

    /// Settings of code memory.
    #[must_use]
    pub fn heap(mut self, heap: HeapConfig) -> JitBuilder {
        self.heap = heap;
        self
    }

    /// Sets the handler of calls whose function cannot be compiled. The handler runs on the calling
    /// thread, maybe in a signal handler; the call continues at the address it returns, with the
    /// call's own arguments. By default a line is written to standard error and the process ends.
    /// [`Dylib::compile`] returns the error itself.
    #[must_use]
    pub fn on_failure(mut self, handler: FailureHandler) -> JitBuilder {
        self.on_failure = OnFailure::Number(handler);
        self
    }

    /// Like [`JitBuilder::on_failure`], with the function's name and the cause.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// extern "C" fn minus_one() -> i32 {
    ///     -1
    /// }
    /// let jit = uruk::Jit::builder().on_failed_call(Arc::new(|call| {
    ///     eprintln!("{} failed: {:?}", call.function, call.cause);
    ///     minus_one as *const ()
    /// }));
    /// let jit = jit.build()?;
    /// jit.main().allow_missing(true);
    /// jit.add_ir("m", "declare i32 @g() define i32 @f() { %v = call i32 @g() ret i32 %v }")?;
    /// // SAFETY: the function above.
    /// let f = unsafe { jit.function::<extern "C" fn() -> i32>("f")? };
    /// assert_eq!(f.call(), -1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn on_failed_call(mut self, handler: FailedCallHandler) -> JitBuilder {
        self.on_failure = OnFailure::Call(handler);
        self
    }

    /// Sets how functions are compiled over their life. Default: [`Tiers::Auto`].
    ///
    /// ```
    /// use uruk::{Jit, Tier, Tiers};
    ///
    /// // Everything is optimized at its first call, which takes longer.
    /// let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized)).build()?;
    /// # drop(jit);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn tiers(mut self, tiers: Tiers) -> JitBuilder {
        self.tiers.tiers = tiers;
        self
    }

    /// Starts functions at tier 2, under [`Tiers::Auto`]: for a session in a native program whose
    /// functions it takes over ([`Dylib::adopt`](crate::Dylib::adopt)), since code of tier 1 would
    /// be slower than the native code.
    #[must_use]
    pub fn over_native(mut self, over: bool) -> JitBuilder {
        self.tiers.over_native = over;
        self
    }

    /// Selects the functions that the baseline compiler compiles at tier 1, in a fifth of the time
    /// that LLVM takes there, to code that is about as fast. LLVM compiles the functions that it
    /// does not cover, so the session's behaviour is the same. On by default.
    ///
    /// ```
    /// use uruk::{Baseline, Jit};
    ///
    /// let jit = Jit::builder().baseline(Baseline::On).build()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// // SAFETY: `twice` is the function above.
    /// let twice = unsafe { jit.function::<extern "C" fn(i64) -> i64>("twice")? };
    /// assert_eq!(twice.call(21), 42);
    /// let stats = jit.stats().baseline;
    /// assert_eq!(stats.compiled + stats.uncovered.len() as u64, 1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn baseline(mut self, baseline: Baseline) -> JitBuilder {
        self.tiers.baseline = baseline;
        self
    }

    /// Opens LLVM's library when it is first needed, instead of when the session is made. Opening
    /// takes 3 to 13 ms, and a program whose first code the baseline compiler makes may end before.
    /// Meant for a process that runs one program only. In any other, session code may wait forever
    /// if a library's constructor or a callback of `dl_iterate_phdr` calls it for the first time.
    ///
    /// Makes no difference if this package was built without the feature `late`: LLVM is then
    /// loaded with the executable.
    #[must_use]
    pub fn late_llvm(mut self, late: bool) -> JitBuilder {
        self.late_llvm = late;
        self
    }

    /// Lists data of added modules in `dl_iterate_phdr`, like that of a library, for garbage
    /// collectors and leak checkers that search it for pointers. Constants and variables are
    /// segments (`PT_LOAD`), thread-locals are `PT_TLS`; an image is listed until its memory is
    /// freed. Off by default; a [`Program`](crate::Program) is always listed.
    ///
    /// The session overwrites the words through which the executable and the libraries of the
    /// process call that function. It does so when the session is made, when [`Jit::add_library`]
    /// returns, and when code is added. Unwinders (libgcc, libunwind) keep the C library's
    /// function.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().list_images(true).build()?;
    /// jit.add_ir("m", "@roots = global [64 x ptr] zeroinitializer")?;
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn list_images(mut self, list: bool) -> JitBuilder {
        self.list_images = list;
        self
    }

    /// Makes the stacks of the process's threads executable, future threads included, as an
    /// executable gets them whose linker was asked to. Modules with trampolines
    /// (`llvm.init.trampoline`, nested functions of GNU C) crash without. Off by default, as it
    /// weakens the process; a [`Program`](crate::Program) that needs it has it.
    #[must_use]
    pub fn executable_stacks(mut self, executable: bool) -> JitBuilder {
        self.executable_stacks = executable;
        self
    }

    /// Lets tiers 2 and 3 fuse a multiplication and an addition, where the source
    /// allowed it. Off by default: results then are the same bits in every tier.
    #[must_use]
    pub fn fp_contract(mut self, contract: bool) -> JitBuilder {
        self.tiers.contract = contract;
        self
    }

    /// Sets the source of the samples that rank functions, under [`Tiers::Auto`]. Default: the
    /// first source that works.
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

    /// Selects the external tools that are told of compiled code. Default: none.
    ///
    /// ```
    /// use uruk::{Jit, ToolSettings};
    ///
    /// let mut tools = ToolSettings::default();
    /// tools.gdb = true;
    /// let jit = Jit::builder().tools(tools).build()?;
    /// # drop(jit);
    /// # Ok::<(), uruk::Error>(())
    /// ```
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

    /// Measures where time goes, for [`Stats::parts`]. Off by default: it reads the clock for each
    /// part of a compile, and the thread's processor time a few times for each compile.
    ///
    /// ```
    /// use uruk::{Jit, Part};
    ///
    /// let jit = Jit::builder().time_parts(true).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// jit.main().compile("one")?;
    /// let parts = jit.stats().parts.expect("measured");
    /// assert!(parts.of(Part::Emitting).cpu <= parts.process);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// [`Stats::parts`]: crate::Stats::parts
    #[must_use]
    pub fn time_parts(mut self, time: bool) -> JitBuilder {
        self.time_parts = time;
        self
    }

    /// Sets the callback for session errors that no caller waits for: a unit that failed in the
    /// background, a panic in a unit. By default they are logged.
    #[must_use]
    pub fn on_error(
        mut self,
        report: impl Fn(&SessionError) + Send + Sync + 'static,
    ) -> JitBuilder {
        self.reporter = Some(Arc::new(report));
        self
    }

    /// Adds a listener that receives every [`Event`]. A panic of it fails the work that the event
    /// is about, as a panic of that work does.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::sync::Arc;
    /// use uruk::{Event, Jit};
    ///
    /// let compiled = Arc::new(AtomicUsize::new(0));
    /// let count = Arc::clone(&compiled);
    /// let jit = Jit::builder()
    ///     .on_event(move |event| {
    ///         if let Event::Compiled { .. } = event {
    ///             count.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     })
    ///     .build()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.main().compile("twice")?;
    /// assert_eq!(compiled.load(Ordering::Relaxed), 1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn on_event(mut self, listen: impl Fn(&Event) + Send + Sync + 'static) -> JitBuilder {
        self.listeners.push(Arc::new(listen));
        self
    }

    /// The tiering policy's settings that the session would have: with its `jobs` and this
    /// machine's `cpus`.
    pub fn effective_policy(&self) -> PolicyConfig {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(cpus).max(1);
        PolicyConfig {
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            // Half of the processors: the program needs the rest.
            jobs: u32::try_from(jobs.min(cpus.div_ceil(2))).unwrap_or(u32::MAX),
            ..self.tiers.policy.clone()
        }
    }

    /// Reserves memory and starts the compile threads.
    ///
    /// # Errors
    /// No address space ([`Error::Room`] where it is limited), no permission for executable memory or for
    /// [executable stacks](JitBuilder::executable_stacks), no thread.
    pub fn build(self) -> Result<Jit, Error> {
        let before = self
            .time_parts
            .then(|| (process_time(), thread_time(), Instant::now()));
        let policy = self.effective_policy();
        let jobs = self.jobs.unwrap_or(policy.cpus as usize);
        let jobs = jobs.clamp(1, MOST_JOBS);
        let mut tiers = self.tiers;
        tiers.policy = policy;
        let heap = backed_for(self.heap, &self.tools);
        let tools = Tools::new(&self.tools)?;
        let reporter = self.reporter.map(|reporter| -> Reporter {
            Arc::new(move |error| gate::outside(|| reporter(error)))
        });
        attend_process(self.list_images, self.executable_stacks)?;
        // The pass lasts until the session is registered for forks.
        let pass = fork::begin(interrupt::after_fork_child);
        room::check()?;
        unwinding::attend();
        let session = Session::new(
            heap,
            jobs,
            tiers,
            tools,
            self.reclaim,
            reporter,
            self.layers,
        )?;
        session.set_lists_images(self.list_images);
        session.distrust(self.untrusted);
        if let Some(count) = self.replacements_kept {
            session.replacing.keep_sets(count);
        }
        for listener in self.listeners {
            session.events.listen(listener);
        }
        session.on_failure(self.on_failure);
        if let Some(handler) = self.on_fault {
            // The cell was empty: the session is new.
            let _ = session.asked.set(HandlerRegistration::new(handler)?);
        }
        if self.record {
            session
                .events
                .record(recorder(&session, Path::new(""), Vec::new()));
        }
        if let Some((before, ..)) = before {
            session.time_parts(before);
        }
        // Behind the C++ library, whose allocation functions an executable's gates look for.
        if !self.late_llvm {
            let _loading = session.counters.parts.enter(Part::Loading);
            llvm::open()?;
        }
        let started = session.start();
        if let Some((_, cpu, began)) = before {
            note_setup(&session, cpu, began);
        }
        let jit = Jit::of(session);
        drop(pass);
        // If a thread did not start, the session ends here, together with the threads that did.
        started?;
        Ok(jit)
    }
}

/// Prepares the process for a session. Runs without a pass, as it waits for the loader's lock.
fn attend_process(list_images: bool, executable_stacks: bool) -> Result<(), Error> {
    if list_images {
        listed::attend();
    }
    match executable_stacks {
        true => stacks::make_executable("the session"),
        false => Ok(()),
    }
}

/// The heap that these tools can use.
fn backed_for(mut heap: HeapConfig, tools: &ToolSettings) -> HeapConfig {
    let private = tools.gdb || tools.perf_map;
    if private && heap.backing == BackingChoice::Auto {
        // A debugger writes breakpoints through the kernel, which copies pages of private memory
        // for it and refuses those of a shared file. perf asks a map for the names of private
        // memory only, a file for those of others.
        heap.backing = BackingChoice::Flip;
    }
    heap
}

/// Adds the time since a session was begun, at that processor time of this thread, without the time
/// to load LLVM.
fn note_setup(session: &Session, cpu: Duration, began: Instant) {
    let loading = session.counters.parts.spent(Part::Loading);
    let cpu = thread_time().saturating_sub(cpu);
    let spent = Spent {
        cpu: cpu.saturating_sub(loading.cpu),
        wall: began.elapsed().saturating_sub(loading.wall),
    };
    session.counters.parts.add(Part::Setup, spent);
}
