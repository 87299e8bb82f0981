//! Settings of a session that belong to other modules: tuning, sampling, speculation, fuel, faults,
//! memory.

use std::time::Duration;

use uruk_base::Variant;
use uruk_heap::Place;
use uruk_profiler::Settings;
use uruk_tiering::tuning::Budget;

use super::builder::JitBuilder;
use crate::error::Error;
use crate::guarded::asked::FaultHandler;
use crate::guarded::passes::look;
use crate::host::clock::nanos;
use crate::load::untrusted::InputLimits;

impl JitBuilder {
    /// Compiles hot functions in several variants above tier 1, and keeps the fastest: see
    /// [`Jit::tuning`](crate::Jit::tuning). Off by default.
    ///
    /// Trials that win nothing take at most 2 % of the program's processor time, plus an initial
    /// quarter of a second in a session that [knows](JitBuilder::tuned_before) no function;
    /// [`tuning_budget`](JitBuilder::tuning_budget) sets both. Code above tier 1 counts its
    /// entries, unless they are less than 25 ns apart.
    #[must_use]
    pub fn tune(mut self, tune: bool) -> JitBuilder {
        self.tiers.tuning.on = tune;
        self
    }

    /// For tests of the tuner: compiles each candidate with the same settings as the version it is
    /// compared with.
    #[doc(hidden)]
    #[must_use]
    pub fn tune_same(mut self, same: bool) -> JitBuilder {
        self.tiers.tuning.same = same;
        self
    }

    /// Sets how all functions are compiled above tier 1; where the session is
    /// [tuned](JitBuilder::tune), the initial variant.
    ///
    /// ```
    /// use uruk::{Jit, Tier, Tiers, Variant};
    ///
    /// let variant: Variant = "inline=none no-unroll vectors=none".parse()?;
    /// let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized)).variant(variant).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// // SAFETY: `one` is the function above.
    /// let one = unsafe { jit.function::<extern "C" fn() -> i32>("one")? };
    /// assert_eq!(one.call(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn variant(mut self, variant: Variant) -> JitBuilder {
        self.tiers.variant = variant;
        self
    }

    /// Sets the price of trials: a share of the program's processor time, and an initial credit.
    #[must_use]
    pub fn tuning_budget(mut self, share: f64, credit: Duration) -> JitBuilder {
        self.tiers.tuning.budget = Some(Budget {
            share: share.clamp(0.0, 1e3),
            credit: nanos(credit),
        });
        self
    }

    /// Starts from the [results](crate::Jit::tuning_text) of an earlier run; of use only where the
    /// session is [tuned](JitBuilder::tune). Text that is damaged, of another version or of another
    /// processor is ignored: [`TuningStats::before`](crate::TuningStats::before) says whether it
    /// was used.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).tuned_before("nonsense".into()).build()?;
    /// let before = jit.stats().tuning.before.expect("there was a text");
    /// assert!(before.starts_with("not used"), "{before}");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn tuned_before(mut self, text: String) -> JitBuilder {
        self.tiers.tuning.before = Some(text);
        self
    }

    /// Rates of sampling and the shares of processor time it may take.
    #[must_use]
    pub fn sampling_settings(mut self, settings: Settings) -> JitBuilder {
        self.tiers.rates = settings;
        self
    }

    /// Compiles on idle processors functions that are likely to be called soon: see
    /// [`Stats::ahead`](crate::Stats::ahead). Their first calls find code, or wait for less. JIT'd
    /// code cannot observe the change; units and generators of the embedder may be asked for needs
    /// of a function that is never called. Has no effect on a single processor, with one
    /// [job](JitBuilder::jobs), in the child of a fork, or under [`Tiers::Churn`](crate::Tiers).
    /// Off by default.
    #[must_use]
    pub fn speculate(mut self, speculate: bool) -> JitBuilder {
        self.tiers.speculate = speculate;
        self
    }

    /// Inlines no function of one module into another. Off by default.
    #[must_use]
    pub fn modules_apart(mut self, apart: bool) -> JitBuilder {
        self.tiers.apart = apart;
        self
    }

    /// Counts fuel in the code of IR functions, at every tier: entries of functions that call
    /// others, and ends of loops' bodies. Off by default. Code of object files, of units and of
    /// shared libraries counts none, also where it is called by code that does.
    ///
    /// Guarded calls can then have a fuel limit ([`Func::with_fuel`](crate::Func::with_fuel)),
    /// which ends the same call at the same place each time.
    /// [`Jit::interrupt`](crate::Jit::interrupt) and deadlines then end them without a signal, at
    /// most 16,384 passes later. (If the thread is then in code that does not count, of an object
    /// file or a unit, the signal comes 20 ms after.) `cargo xtask bench --only "counted passes"`
    /// prints the cost.
    ///
    /// Code is changed when it is added: LLVM reads and writes it once.
    ///
    /// ```
    /// use uruk::{GuestThread, Jit, TrapKind};
    ///
    /// let jit = Jit::builder().count_fuel(true)?.build()?;
    /// jit.add_ir("m", "define i64 @sum(i64 %n) {
    ///   br label %l
    /// l:
    ///   %i = phi i64 [ 0, %0 ], [ %j, %l ]
    ///   %s = phi i64 [ 0, %0 ], [ %t, %l ]
    ///   %t = add i64 %s, %i
    ///   %j = add i64 %i, 1
    ///   %more = icmp ult i64 %j, %n
    ///   br i1 %more, label %l, label %e
    /// e:
    ///   ret i64 %t
    /// }")?;
    /// // SAFETY: the function above.
    /// let sum = unsafe { jit.function::<extern "C" fn(u64) -> u64>("sum")? };
    /// let before = GuestThread::fuel_used();
    /// assert_eq!(sum.with_fuel(1000).call_guarded(1000).ok(), Some(499_500));
    /// assert_eq!(GuestThread::fuel_used() - before, 1000);
    /// let trap = sum.with_fuel(999).call_guarded(1000).unwrap_err();
    /// assert!(matches!(trap.kind, TrapKind::OutOfFuel));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::FuelUncounted`]: this library was opened by a running process (`dlopen`), which had made
    /// 32 keys of `pthread_key_create` before, so that threads have their words at different places.
    pub fn count_fuel(mut self, count: bool) -> Result<JitBuilder, Error> {
        self.layers.look = match count {
            true => Some(look().ok_or(Error::FuelUncounted)?),
            false => None,
        };
        Ok(self)
    }

    /// Passes memory faults to `handler` first: those of a collector that protects pages for its
    /// barriers, in its own code, in JIT'd code and in its callees. It gets each memory fault
    /// (`SIGSEGV`, `SIGBUS`) that the processor raises on any thread of the process. It runs before
    /// the guarded call that the fault would end, and before handlers that the process had when the
    /// first such session was made. A handler that is set later gets the signal instead, and can
    /// call the previous one.
    ///
    /// It runs in the signal's handler on the thread that faults, maybe on an alternate stack, with
    /// all signals blocked but those of faults. It must be async-signal-safe and must not fault
    /// itself; `errno` is preserved. It must not panic or unwind. It is called as long as the
    /// session lives; sessions may share one, and a process has at most 16 different ones.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use uruk::{FaultAnswer, Jit, MemoryFault};
    ///
    /// static PAGE: AtomicU64 = AtomicU64::new(0);
    ///
    /// /// Opens the page that is closed.
    /// fn open(fault: &MemoryFault) -> FaultAnswer {
    ///     let page = PAGE.load(Ordering::Relaxed);
    ///     if fault.address & !0xfff != page {
    ///         return FaultAnswer::NotMine;
    ///     }
    ///     // SAFETY: the page below, which nothing else uses.
    ///     let opened = unsafe { libc::mprotect(page as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE) };
    ///     match opened {
    ///         0 => FaultAnswer::Again,
    ///         _ => FaultAnswer::NotMine,
    ///     }
    /// }
    ///
    /// let (kind, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    /// // SAFETY: new memory.
    /// let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, kind, flags, -1, 0) };
    /// PAGE.store(page as u64, Ordering::Relaxed);
    /// let jit = Jit::builder().on_fault(open).build()?;
    /// jit.add_ir("m", "define void @set(ptr %p) { store i32 7, ptr %p ret void }")?;
    /// // SAFETY: the function above.
    /// let set = unsafe { jit.function::<extern "C" fn(*mut i32)>("set")? };
    /// set.call_guarded(page.cast()).expect("no trap");
    /// // SAFETY: it is open, and was written.
    /// assert_eq!(unsafe { *page.cast::<i32>() }, 7);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn on_fault(mut self, handler: FaultHandler) -> JitBuilder {
        self.on_fault = Some(handler);
        self
    }

    /// Treats added bitcode and IR, also of runs and replacements, as untrusted. A child process
    /// reads each input first, within these limits; an input on which LLVM crashes or hangs is
    /// [`Error::Untrusted`]. An `add` takes a fork, and as long again as compiling all of the
    /// module at the first tier. The embedder sees a `SIGCHLD`.
    ///
    /// ```
    /// use uruk::{Jit, InputLimits};
    ///
    /// let jit = Jit::builder().untrusted(InputLimits::default()).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// assert!(jit.main().add_bitcode("bad", b"BC\xC0\xDE and so on".as_slice()).is_err());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn untrusted(mut self, limits: InputLimits) -> JitBuilder {
        self.untrusted = Some(limits);
        self
    }

    /// Reserves that many bytes for variables, up to 1.8 GiB with the largest reservation; the
    /// minimum is 0.9 GiB ([`HeapConfig::data`]). A module whose data does not fit fails to load,
    /// with an error that names the [size needed](Error::wants_static_data).
    ///
    /// [`HeapConfig::data`]: uruk_heap::HeapConfig
    #[must_use]
    pub fn static_data(mut self, bytes: usize) -> JitBuilder {
        self.heap.data = bytes;
        self
    }

    /// Places code and data below 2 GiB, at most 1.5 GiB (`HeapConfig::place`). Objects of the
    /// small non-PIC model need this, as does inline assembly that uses addresses as 32-bit
    /// numbers. Otherwise they fail to link, with an error that [says
    /// so](Error::wants_low_addresses). By default memory is placed at random anywhere. See
    /// [`needs_low_addresses`](crate::needs_low_addresses).
    #[must_use]
    pub fn low_addresses(mut self, low: bool) -> JitBuilder {
        self.heap.place = match low {
            true => Place::Low,
            false => Place::Random,
        };
        self
    }

    /// Places code and data within 2 GiB of the process's libraries (`HeapConfig::place`), at most
    /// 1.25 GiB. Objects that were compiled for an executable (without `-fPIC`) then reach
    /// variables of these libraries, as they do where a static linker copies the variables into
    /// the executable. Below 2 GiB ([`low_addresses`](JitBuilder::low_addresses)) and elsewhere
    /// only a [`Program`](crate::Program) can have such copies. See
    /// [`needs_near_libraries`](crate::needs_near_libraries).
    #[must_use]
    pub fn near_libraries(mut self, near: bool) -> JitBuilder {
        self.heap.place = match near {
            true => Place::Near,
            false => Place::Random,
        };
        self
    }
}
