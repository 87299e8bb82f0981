//! The handle of a session.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uruk_base::Tier;
use uruk_reclaim::Kind as ReclaimKind;
use uruk_session::Dump;

use crate::api::builder::JitBuilder;
use crate::api::dylib::Dylib;
use crate::api::func::Func;
use crate::api::symbols;
use crate::calls::value::Signature;
use crate::error::Error;
use crate::events::memory::MemoryReport;
use crate::fork::gate;
use crate::guarded::interrupt::GuestThread;
use crate::reclaim::RegisteredStack;
use crate::session::Session;
use crate::session::SessionEnd;
#[cfg(doc)]
use crate::told::stats::MemoryStats;
use crate::told::stats::Stats;

/// A session: cheap to clone, usable from any thread.
///
/// Its memory lives as long as the last handle or function of it; after that, calling an address
/// obtained from it is undefined. At its end it runs its destructors and its code's exit handlers,
/// as when everything is [removed](crate::Tracker::remove).
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
    shared: Arc<JitShared>,
}

struct JitShared {
    session: Arc<Session>,
    /// Dropped after the session.
    _end: SessionEnd,
}

impl Drop for JitShared {
    fn drop(&mut self) {
        self.session.leave_all();
        {
            let _pass = gate::enter();
            self.session.names.session().end_waits();
        }
        self.session.stop();
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jit")
    }
}

/// A weak handle of a session, for objects that the session itself keeps: units and generators get
/// the session from their arguments.
#[derive(Clone)]
pub struct WeakJit {
    shared: Weak<JitShared>,
}

impl fmt::Debug for WeakJit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakJit")
    }
}

impl WeakJit {
    /// The session, if it still exists.
    pub fn upgrade(&self) -> Option<Jit> {
        let shared = self.shared.upgrade()?;
        Some(Jit { shared })
    }
}

impl Jit {
    pub(crate) fn of(session: Arc<Session>) -> Jit {
        Jit {
            shared: Arc::new(JitShared {
                _end: SessionEnd::of(&session),
                session,
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

    /// Default settings to start from.
    ///
    /// ```
    /// use uruk::{Jit, Tier, Tiers};
    ///
    /// let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized)).jobs(1).build()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.main().compile("twice")?;
    /// assert_eq!(jit.tier("twice")?, Some(Tier::Optimized));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn builder() -> JitBuilder {
        JitBuilder::default()
    }

    /// Calls [`Dylib::add_ir`] on [`Jit::main`].
    ///
    /// # Errors
    /// As [`Dylib::add_ir`].
    pub fn add_ir(&self, name: &str, text: &str) -> Result<(), Error> {
        self.main().add_ir(name, text)
    }

    /// Calls [`Dylib::function`] on [`Jit::main`].
    ///
    /// # Safety
    /// As [`Dylib::function`].
    ///
    /// # Errors
    /// As [`Dylib::function`].
    pub unsafe fn function<F: Signature>(&self, name: &str) -> Result<Func<F>, Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.main().function(name) }
    }

    /// Calls [`Dylib::lookup`] on [`Jit::main`].
    ///
    /// # Errors
    /// As [`Dylib::lookup`].
    pub fn lookup(&self, name: &str) -> Result<u64, Error> {
        // Without a handle of the dylib: making one counts, in words that all threads share.
        let session = &self.shared.session;
        match session.names.ready_symbol_of(&session.main, name) {
            Some(address) => Ok(address),
            None => self.main().lookup(name),
        }
    }

    /// The dylib to which the handle itself adds modules.
    pub fn main(&self) -> Dylib {
        Dylib {
            jit: self.clone(),
            dylib: self.shared.session.main.clone(),
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
        let dylib = self.shared.session.names.create_dylib(name)?;
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
            symbols::add_to_process(&self.shared.session, name)
        };
        self.shared.session.show_list();
        added
    }

    /// Calls [`Dylib::compile_at`] on [`Jit::main`].
    ///
    /// # Errors
    /// As [`Dylib::compile_at`].
    pub fn compile_at(&self, name: &str, tier: Tier) -> Result<(), Error> {
        self.main().compile_at(name, tier)
    }

    /// Calls [`Dylib::tier`] on [`Jit::main`].
    ///
    /// # Errors
    /// As [`Dylib::tier`].
    pub fn tier(&self, name: &str) -> Result<Option<Tier>, Error> {
        self.main().tier(name)
    }

    /// Ends a thread's innermost guarded call ([`Func::within`]) with
    /// [`TrapKind::Interrupted`](crate::TrapKind::Interrupted), as soon as it is in JIT'd code;
    /// false if it is in none. A thread that sleeps in the kernel, or is in a function of the host,
    /// is not woken. [`GuestThread::current`] has an example.
    pub fn interrupt(&self, thread: &GuestThread) -> bool {
        thread.interrupt()
    }

    /// Stops the policy from starting better versions until [`Jit::resume_tiers`]. Counting and
    /// sampling go on, and explicit requests and pins are still compiled.
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
        self.shared.session.tiers.pause(true);
    }

    /// Ends [`Jit::pause_tiers`].
    pub fn resume_tiers(&self) {
        let _busy = gate::enter();
        self.shared.session.tiers.pause(false);
    }

    /// Runs the constructors of everything added since the last call, with no arguments: by
    /// priority over all inputs, as in one library. Those of equal priority run in the order they
    /// were added.
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
    /// Constructors that another thread has begun to run by this function may not be over when it
    /// returns.
    ///
    /// # Safety
    /// As calling any function of the modules.
    ///
    /// # Errors
    /// [`Error::Trap`]: the trap of a constructor, as in a guarded call
    /// ([`Func::call_guarded`](crate::Func)), errors and panics of functions of the host included.
    /// Its input is not initialized; later constructors of other inputs run at the next call.
    pub unsafe fn initialize(&self) -> Result<(), Error> {
        let session = &self.shared.session;
        {
            let _busy = gate::enter();
            session.link_waiting(None);
        }
        // SAFETY: by the caller's promise.
        unsafe { session.run_due(&|_| true) }
    }

    /// Runs the destructors of the inputs that [`Jit::initialize`] initialized: the latest call's
    /// first, and within one call by reversed priority over all inputs. Inputs that are removed
    /// earlier, or live until the session ends, have theirs run then
    /// ([`Tracker::remove`](crate::Tracker::remove)). A destructor that fails, by a panic, an error
    /// of a function of the host or a trap, is reported to
    /// [`JitBuilder::on_error`](crate::JitBuilder::on_error), and the others run.
    ///
    /// # Safety
    /// As calling any function of the modules.
    pub unsafe fn deinitialize(&self) {
        // Each is taken out before it runs: a destructor may call this function, or remove other
        // inputs.
        while let Some(address) = self.shared.session.next_destructor(|_, _| true) {
            // SAFETY: by the caller's promise.
            unsafe { self.shared.session.destroy(address) };
        }
    }

    /// Frees retired code now, and with [`ReclaimKind::Evacuate`] compacts live code, hot first.
    /// Waits until done, at most for `limit`; true if done. Code that threads may return into
    /// stays, see [`MemoryStats::pins`]. Automatic reclamation follows [`JitBuilder::reclaim`].
    pub fn reclaim(&self, kind: ReclaimKind, limit: Duration) -> bool {
        self.shared.session.reclaim_now(kind, limit)
    }

    /// Declares that code of the session may run on `stack` while no thread of the process is on
    /// it, as on a fiber's: code with return addresses there stays. Threads' own stacks, alternate
    /// signal stacks, and in JIT'd code those of `makecontext`, are known. Usable on any thread.
    ///
    /// For code that switches stacks itself, [`Stacks`](crate::Stacks) selects whether all memory
    /// is searched.
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
    /// 1. The memory stays readable until the result is dropped.
    /// 2. It is dropped only when no thread will continue the calls that began on the stack.
    ///
    /// # Errors
    /// A range that is empty or not aligned to 8 bytes, 4,096 stacks are registered
    /// already, or no signal is left for the scan of threads.
    pub unsafe fn register_stack(&self, stack: Range<u64>) -> Result<RegisteredStack, Error> {
        let session = &self.shared.session;
        let _busy = gate::enter();
        RegisteredStack::new(session, Arc::clone(session) as _, stack)
    }

    /// Statistics of the session so far.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.main().compile("twice")?;
    /// assert_eq!(jit.stats().compiled, 1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let _busy = gate::enter();
        self.shared.session.stats()
    }

    /// Evicts code of functions until at most `most` bytes are left, least recently used first;
    /// returns the bytes evicted. See [`JitBuilder::code_budget`].
    pub fn evict_cold(&self, most: u64) -> u64 {
        let _busy = gate::enter();
        self.shared.session.evict_down_to(most)
    }

    /// A readable dump of the dylibs at this moment: link orders, and symbols with their flags,
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
        let session = &self.shared.session;
        let mut dump = session.names.session().dump();
        // The dylib of internal names of versions is left out.
        let bodies = session.names.bodies.id();
        dump.dylibs.retain(|dylib| dylib.id != bodies);
        dump
    }

    /// The session's memory use, by dylib, tracker, tier and purpose.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "@table = global [1000 x i32] zeroinitializer
    ///   define i32 @one() { ret i32 1 }")?;
    /// jit.main().compile("one")?;
    /// let memory = jit.memory();
    /// let by_dylib: u64 = memory.by_dylib().iter().map(|(_, bytes)| bytes).sum();
    /// assert_eq!(by_dylib, memory.total());
    /// assert!(memory.of(uruk::MemoryPurpose::Zeroed) >= 4000);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn memory(&self) -> MemoryReport {
        let _busy = gate::enter();
        self.shared.session.memory_report()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.shared.session
    }
}
