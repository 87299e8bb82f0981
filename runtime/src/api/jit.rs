//! The handle of a session.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uruk_base::Tier;
use uruk_reclaim::Kind as ReclaimKind;
use uruk_session::Dump;

use crate::api::builder::JitBuilder;
use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::func::Func;
use crate::calls::interrupt::GuestThread;
use crate::calls::value::Signature;
use crate::core::Core;
use crate::core::SessionEnd;
use crate::fork::gate;
use crate::reclaim::RegisteredStack;
use crate::told::memory::MemoryReport;
#[cfg(doc)]
use crate::told::stats::MemoryStats;
use crate::told::stats::Stats;

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
    /// Dropped after the session.
    _end: SessionEnd,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.leave_all();
        {
            let _pass = gate::enter();
            self.core.names.session().end_waits();
        }
        self.core.stop();
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jit")
    }
}

/// A session that is not kept alive, for what the session itself keeps: units and generators that
/// need it get it from what they are called with.
#[derive(Clone)]
pub struct WeakJit {
    shared: Weak<Shared>,
}

impl fmt::Debug for WeakJit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakJit")
    }
}

impl WeakJit {
    /// The session, if it is still there.
    pub fn upgrade(&self) -> Option<Jit> {
        let shared = self.shared.upgrade()?;
        Some(Jit { shared })
    }
}

impl Jit {
    pub(crate) fn of(core: Arc<Core>) -> Jit {
        Jit {
            shared: Arc::new(Shared {
                _end: SessionEnd::of(&core),
                core,
            }),
        }
    }

    /// A session with default settings.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "@word = global i64 7")?;
    /// assert_ne!(jit.lookup("word")?, 0);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn new() -> Result<Jit, Error> {
        Jit::builder().build()
    }

    /// Settings to start from.
    ///
    /// ```
    /// use uruk::{Jit, Tier, Tiers};
    ///
    /// let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized)).jobs(1).build()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.compile("twice")?;
    /// assert_eq!(jit.tier("twice")?, Some(Tier::Optimized));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn builder() -> JitBuilder {
        JitBuilder::default()
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

    /// [`Dylib::add_bitcode`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_bitcode(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.main().add_bitcode(name, bytes)
    }

    /// [`Dylib::add_file`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_file(&self, path: &Path) -> Result<(), Error> {
        self.main().add_file(path)
    }

    /// [`Dylib::add_object`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn add_object(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.main().add_object(name, bytes)
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

    /// [`Dylib::lookup`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn lookup(&self, name: &str) -> Result<u64, Error> {
        // Without a handle of the dylib: making one counts, in words that all threads share.
        let core = &self.shared.core;
        match core.names.ready_symbol_of(&core.main, name) {
            Some(address) => Ok(address),
            None => self.main().lookup(name),
        }
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
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let (one, other) = (jit.create_dylib("one")?, jit.create_dylib("other")?);
    /// // Each has its own.
    /// one.add_ir("m", "define i32 @version() { ret i32 1 }")?;
    /// other.add_ir("m", "define i32 @version() { ret i32 2 }")?;
    /// // SAFETY: the functions above.
    /// let version = unsafe { other.function::<extern "C" fn() -> i32>("version")? };
    /// assert_eq!(version.call(), 2);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// The name is taken.
    pub fn create_dylib(&self, name: &str) -> Result<Dylib, Error> {
        let _busy = gate::enter();
        let dylib = self.shared.core.names.create_dylib(name)?;
        Ok(Dylib {
            jit: self.clone(),
            dylib,
        })
    }

    /// A handle that does not keep the session alive.
    pub fn downgrade(&self) -> WeakJit {
        WeakJit {
            shared: Arc::downgrade(&self.shared),
        }
    }

    /// Adds a shared library whose symbols JIT'd code may use.
    ///
    /// # Errors
    /// The dynamic loader's message.
    pub fn add_library(&self, name: &str) -> Result<(), Error> {
        let added = {
            let _busy = gate::enter();
            self.shared.core.add_library(name)
        };
        self.shared.core.show_list();
        added
    }

    /// [`Dylib::define_address`] of [`Jit::main`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn define_address(&self, name: &str, address: *const ()) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.main().define_address(name, address) }
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

    /// Ends a thread's innermost guarded call ([`Func::within`]) with
    /// [`TrapKind::Interrupted`](crate::TrapKind::Interrupted), as soon as it is in JIT'd code; false
    /// if it is in none. A thread that sleeps in the system, or is in a function of the host, is not
    /// woken. [`GuestThread::current`] has an example.
    pub fn interrupt(&self, thread: &GuestThread) -> bool {
        thread.interrupt()
    }

    /// Starts no better versions by itself until [`Jit::resume_tiers`]; counting and
    /// sampling go on, and what was asked for or pinned is still compiled.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.pause_tiers();
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// // What is asked for is compiled all the same.
    /// jit.compile_at("twice", uruk::Tier::Optimized)?;
    /// jit.resume_tiers();
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn pause_tiers(&self) {
        let _busy = gate::enter();
        self.shared.core.tiers.pause(true);
    }

    /// Ends [`Jit::pause_tiers`].
    pub fn resume_tiers(&self) {
        let _busy = gate::enter();
        self.shared.core.tiers.pause(false);
    }

    /// Runs the constructors of everything added since the last call, with no arguments: by
    /// priority over all inputs, as in one library, and of equal ones in the order they were added.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "@word = global i64 0
    ///   @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
    ///     [{ i32, ptr, ptr } { i32 65535, ptr @begin, ptr null }]
    ///   define internal void @begin() { store i64 7, ptr @word ret void }
    ///   define i64 @word_now() { %x = load i64, ptr @word ret i64 %x }")?;
    /// // SAFETY: the functions above.
    /// let word = unsafe { jit.function::<extern "C" fn() -> i64>("word_now")? };
    /// assert_eq!(word.call(), 0);
    /// // SAFETY: as above.
    /// unsafe { jit.initialize()? };
    /// assert_eq!(word.call(), 7);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// As calling any function of the modules.
    ///
    /// # Errors
    /// [`Error::Trap`]: what went wrong in a constructor, as in a guarded call
    /// ([`Func::call_guarded`](crate::Func)), an error of a function of the host among it; a panic of
    /// such a function. Its input is not initialized; constructors of others that were behind it run
    /// at the next call.
    pub unsafe fn initialize(&self) -> Result<(), Error> {
        let core = &self.shared.core;
        {
            let _busy = gate::enter();
            core.link_waiting(None);
        }
        // SAFETY: by the caller's promise.
        unsafe { core.run_due(&|_| true) }
    }

    /// Runs the destructors of what [`Jit::initialize`] initialized: of the latest call first, and of
    /// one call by reversed priority over all inputs. What is removed
    /// before, or not until the session ends, has them run then
    /// ([`Tracker::remove`](crate::Tracker::remove)). One that fails, by a panic or an error of a function
    /// of the host or by a trap, is told to [`JitBuilder::on_error`](crate::JitBuilder::on_error), and
    /// the others run.
    ///
    /// # Safety
    /// As calling any function of the modules.
    pub unsafe fn deinitialize(&self) {
        // Each is taken out before it runs: one may come back here, or remove others.
        while let Some(address) = self.shared.core.next_destructor(|_, _| true) {
            // SAFETY: by the caller's promise.
            unsafe { self.shared.core.destroy(address) };
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
        let _busy = gate::enter();
        RegisteredStack::new(core, stack)
    }

    /// What the session has done so far.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.compile("twice")?;
    /// assert_eq!(jit.stats().compiled, 1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let _busy = gate::enter();
        self.shared.core.stats()
    }

    /// [`Dylib::evict`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn evict(&self, name: &str) -> Result<bool, Error> {
        self.main().evict(name)
    }

    /// Evicts code of functions until no more than `most` bytes are left, what was not used for
    /// longest first; how many bytes went. See [`JitBuilder::code_budget`].
    pub fn evict_cold(&self, most: u64) -> u64 {
        let _busy = gate::enter();
        self.shared.core.evict_down_to(most)
    }

    /// What the dylibs hold at this moment, for people: link orders, and symbols with their flags,
    /// states, addresses and trackers.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// jit.lookup("one")?;
    /// assert!(jit.dump().to_string().contains("  one: Ready {exported, callable} at 0x"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn dump(&self) -> Dump {
        let _busy = gate::enter();
        let core = &self.shared.core;
        let mut dump = core.names.session().dump();
        // What versions are called among us.
        let bodies = core.names.bodies.id();
        dump.dylibs.retain(|dylib| dylib.id != bodies);
        dump
    }

    /// What the session's memory is used for, by dylib, tracker, tier and purpose.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "@table = global [1000 x i32] zeroinitializer
    ///   define i32 @one() { ret i32 1 }")?;
    /// jit.compile("one")?;
    /// let memory = jit.memory();
    /// let by_dylib: u64 = memory.by_dylib().iter().map(|(_, bytes)| bytes).sum();
    /// assert_eq!(by_dylib, memory.total());
    /// assert!(memory.of(uruk::MemoryPurpose::Zeroed) >= 4000);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn memory(&self) -> MemoryReport {
        let _busy = gate::enter();
        self.shared.core.memory_report()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }
}
