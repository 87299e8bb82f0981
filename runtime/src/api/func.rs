//! Typed functions: checked once, when acquired, then called through their slots like a C function
//! pointer.
//!
//! # Why
//! Threads that promise to enter JIT'd code through `Func` only (`FuncOnlyThread`) are neither
//! signalled nor read while they are outside. The promise cannot be checked: a call through a
//! function pointer that a library holds passes no code of the runtime.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uruk_base::FunctionId;
use uruk_codegen::Kind;
use uruk_roots::{CountedThread, Inside};

use crate::api::jit::Jit;
use crate::calls::value::Value;
use crate::code::module::Module;
use crate::code::recycle::Lease;
use crate::error::Error;
use crate::error::trap::Trap;
use crate::fork::gate;
use crate::guarded::guard;
use crate::guarded::passes::Limits;
use crate::session::Session;

impl Session {
    /// The IR type of a function that is behind a stub, if it is IR's.
    pub(crate) fn function_type(&self, id: FunctionId) -> Result<Option<Arc<str>>, Error> {
        let _busy = gate::enter();
        let Some(function) = self.function(id) else {
            return match self.body(id) {
                Some(_) => Ok(None),
                None => Err(Error::NotAFunction {
                    name: self.name_of(id).to_owned(),
                }),
            };
        };
        let summary = function.module.readers.summary();
        debug_assert_eq!(
            summary.symbols[function.symbol.index()].kind,
            Kind::Function
        );
        Module::type_of(&function.module, function.symbol).map(Some)
    }
}

/// Promise that the thread that made it runs JIT'd code only within [`Func`] calls.
#[derive(Debug)]
pub struct FuncOnlyThread {
    _counted: CountedThread,
}

impl FuncOnlyThread {
    /// Counts the calling thread's calls from now on, so that the search for return addresses skips
    /// the thread while it is outside of them. It gets no signal, and its stacks are not read. A
    /// call costs two more stores. At most 256 threads at once; further threads are searched as
    /// usual.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @half(i64 %x) { %y = lshr i64 %x, 1 ret i64 %y }")?;
    /// // SAFETY: `half` is the function above.
    /// let half = unsafe { jit.function::<extern "C" fn(i64) -> i64>("half")? };
    /// // SAFETY: this thread calls `half` and nothing else of the session.
    /// let _counted = unsafe { uruk::FuncOnlyThread::begin() };
    /// assert_eq!(half.call(42), 21);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// Until the result is dropped, for every session of the process:
    /// 1. The thread is in no JIT'd code now, and enters it by `Func::call` only: not through an
    ///    address ([`Func::address`], [`Jit::lookup`]) outside of such a call, nor by a callback of
    ///    a library, a signal handler, or the destructor of a thread-local. The runtime cannot
    ///    check this.
    /// 2. The result is dropped on this thread, not forgotten: its id is given to other threads
    ///    later.
    pub unsafe fn begin() -> FuncOnlyThread {
        FuncOnlyThread {
            // SAFETY: by the caller's promises; `Func::call` lives within an `Inside`.
            _counted: unsafe { CountedThread::begin() },
        }
    }
}

/// A function of a session, called through its slot: every call runs the version
/// that is published at that moment. Keeps the session alive.
pub struct Func<F> {
    jit: Jit,
    id: FunctionId,
    slot: *const AtomicU64,
    lease: Arc<Lease>,
    marker: PhantomData<F>,
}

// SAFETY: a slot is an atomic word of the session, which the handle keeps alive; the threads that
// may call the function itself are the caller's promise on acquiring.
unsafe impl<F> Send for Func<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for Func<F> {}

// A panic that passes a call leaves the session as any other end of a call does.
impl<F> UnwindSafe for Func<F> {}
impl<F> RefUnwindSafe for Func<F> {}

impl<F> fmt::Debug for Func<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Func({:#x})", self.address())
    }
}

impl<F> Clone for Func<F> {
    fn clone(&self) -> Func<F> {
        Func {
            jit: self.jit.clone(),
            id: self.id,
            slot: self.slot,
            lease: Arc::clone(&self.lease),
            marker: PhantomData,
        }
    }
}

impl<F> Func<F> {
    /// Makes a handle of a function whose type has been compared.
    pub(crate) fn new(jit: Jit, (id, lease): (FunctionId, Arc<Lease>)) -> Func<F> {
        let slot = jit.session().stubs.slot_address(id).0 as *const AtomicU64;
        Func {
            jit,
            id,
            slot,
            lease,
            marker: PhantomData,
        }
    }

    /// The function's address for its whole life, to be passed to C code.
    pub fn address(&self) -> u64 {
        self.jit.session().given_stub(self.id)
    }

    /// The function, with a limit of time for guarded calls of it.
    ///
    /// A guarded call, `call_guarded`, returns a [`Trap`] where a call would end the process. It
    /// covers
    ///
    /// - faults of JIT'd code that it runs: division by zero, memory, `llvm.trap`, stack overflow.
    ///   Faults elsewhere, for example in a library that JIT'd code calls, go to the handlers of
    ///   the process;
    /// - errors of the host's functions ([`HostResult`](crate::HostResult));
    /// - calls of functions that have no code
    ///   ([`JitBuilder::on_failure`](crate::JitBuilder::on_failure) goes first, where it is set);
    /// - interrupts ([`Jit::interrupt`]), and the limit.
    ///
    /// A trap unwinds nothing: destructors and cleanups of the skipped frames do not run. Memory
    /// they had allocated and locks they hold stay so, and memory that JIT'd code was writing is
    /// half written. A `longjmp` to one of them is undefined. C code in between, as `qsort`'s, is
    /// skipped as well. If a signal handler made the failing call, the signals that it blocks stay
    /// blocked.
    ///
    /// A function of the host that calls JIT'd code makes guarded calls itself, and returns the
    /// error: a trap above it does not end the calls below it. Exceptions and panics pass, as they
    /// do through a plain call.
    ///
    /// A call that fails allocates its trap: in a signal handler, only where the interrupted code
    /// is not in the allocator. Limits and interrupts use a real-time signal that the process does
    /// not use; it is unblocked on threads that make guarded calls.
    ///
    /// A thread may make guarded calls on several stacks (fibers, coroutines), which end in any
    /// order, and lie in any memory but the thread's own stack. A fiber in an array of one of its
    /// frames is mistaken for calls that a jump has left. Once a guarded call begins in a frame
    /// above the array, those on the fiber no longer count, and a fault there ends the process.
    ///
    /// A fault that LLVM assumes impossible is not an error of the language. In IR a division by
    /// zero is undefined, and optimization may remove the division and the code behind it. A
    /// function must compare first, then trap or call a function of the host that returns an error.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uruk::TrapKind;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "declare void @llvm.trap()
    ///   define i64 @div(i64 %a, i64 %b) {
    ///     %is_zero = icmp eq i64 %b, 0
    ///     br i1 %is_zero, label %error, label %divide
    ///   error:
    ///     call void @llvm.trap()
    ///     unreachable
    ///   divide:
    ///     %q = sdiv i64 %a, %b
    ///     ret i64 %q
    ///   }
    ///   define void @spin() { br label %l l: br label %l }")?;
    /// // SAFETY: the functions above.
    /// let div = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("div")? };
    /// assert_eq!(div.call_guarded(84, 2).ok(), Some(42));
    /// let trap = div.call_guarded(84, 0).unwrap_err();
    /// assert!(matches!(trap.kind, TrapKind::Illegal));
    /// assert_eq!(trap.function(), Some("div"));
    ///
    /// // SAFETY: likewise.
    /// let spin = unsafe { jit.function::<extern "C" fn()>("spin")? };
    /// let trap = spin.within(Duration::from_millis(5)).call_guarded().unwrap_err();
    /// assert!(matches!(trap.kind, TrapKind::Deadline(_)));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn within(&self, limit: Duration) -> LimitedCall<'_, F> {
        LimitedCall {
            func: self,
            limits: Limits {
                time: Some(limit),
                ..self.limits()
            },
        }
    }

    /// The function, with a fuel limit for guarded calls of it, where its session counts fuel
    /// ([`JitBuilder::count_fuel`](crate::JitBuilder::count_fuel), which has an example). Elsewhere
    /// such calls fail with [`TrapKind::NotCounted`](crate::TrapKind::NotCounted).
    pub fn with_fuel(&self, passes: u64) -> LimitedCall<'_, F> {
        LimitedCall {
            func: self,
            limits: Limits {
                fuel: Some(passes),
                ..self.limits()
            },
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            looks: self.looks(),
            ..Limits::default()
        }
    }

    /// Whether its session's code counts fuel.
    pub(crate) fn looks(&self) -> bool {
        self.jit.session().layers.look.is_some()
    }

    pub(crate) fn entry(&self) -> u64 {
        // SAFETY: the slot lives as long as the session that `jit` keeps alive.
        // Acquire: pairs with the release of `StubTable::publish`.
        unsafe { (*self.slot).load(Ordering::Acquire) }
    }
}

/// A function whose guarded calls have a limit of time or fuel: [`Func::within`],
/// [`Func::with_fuel`].
#[derive(Debug)]
pub struct LimitedCall<'f, F> {
    func: &'f Func<F>,
    limits: Limits,
}

impl<F> LimitedCall<'_, F> {
    /// Adds a time limit ([`Func::within`]).
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limits.time = Some(limit);
        self
    }

    /// Adds a fuel limit ([`Func::with_fuel`]).
    #[must_use]
    pub fn with_fuel(mut self, passes: u64) -> Self {
        self.limits.fuel = Some(passes);
        self
    }

    fn enter<R>(&self, call: impl FnOnce(u64) -> R) -> Result<R, Trap> {
        let mut result = None;
        let inside = Inside::begin();
        let ended = guard::run(self.limits, || result = Some(call(self.func.entry())));
        drop(inside);
        match (ended, result) {
            (Ok(()), Some(result)) => Ok(result),
            (Err(trap), _) => Err(trap),
            (Ok(()), None) => unreachable!("a call that returned has a result"),
        }
    }
}

/// Defines the call methods for one kind of function pointer: `call` is safe for plain ones, unsafe
/// for others.
macro_rules! calls {
    ($kind:ty, [$($unsafe:tt)?] $as:ty, $result:ident, $($name:ident $ty:ident),*) => {
        impl<$result: Value, $($ty: Value),*> Func<$kind> {
            /// Calls the published version.
            ///
            /// # Safety
            /// Those of the function itself, where it is an unsafe one.
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub $($unsafe)? fn call(&self, $($name: $ty),*) -> $result {
                let _inside = Inside::begin();
                // SAFETY: a slot holds ready code or a trampoline that leads to it, and the type
                // was compared on acquiring; the other promises were made then, or now. `C-unwind`,
                // as C++ code may throw through the call.
                let function = unsafe { std::mem::transmute::<u64, $as>(self.entry()) };
                function($($name),*)
            }

            /// Calls the published version; errors of JIT'd code are returned as a value.
            ///
            /// See [`Func::within`] for these errors, and for a time limit.
            ///
            /// # Safety
            /// Those of the function itself, where it is an unsafe one.
            ///
            /// # Errors
            /// The [`Trap`].
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub $($unsafe)? fn call_guarded(&self, $($name: $ty),*) -> Result<$result, Trap> {
                let within = LimitedCall { func: self, limits: self.limits() };
                within.enter(move |entry| {
                    // SAFETY: as in `call`.
                    let function = unsafe { std::mem::transmute::<u64, $as>(entry) };
                    function($($name),*)
                })
            }
        }

        impl<$result: Value, $($ty: Value),*> LimitedCall<'_, $kind> {
            /// Like the function's `call_guarded`, within the limit.
            ///
            /// # Safety
            /// Those of the function itself, where it is an unsafe one.
            ///
            /// # Errors
            /// The [`Trap`].
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub $($unsafe)? fn call_guarded(&self, $($name: $ty),*) -> Result<$result, Trap> {
                self.enter(move |entry| {
                    // SAFETY: as in `call`.
                    let function = unsafe { std::mem::transmute::<u64, $as>(entry) };
                    function($($name),*)
                })
            }
        }
    };
}

macro_rules! signatures {
    ($(($($name:ident $ty:ident),*)),* $(,)?) => {$(
        calls!(
            extern "C" fn($($ty),*) -> R, [] extern "C-unwind" fn($($ty),*) -> R,
            R, $($name $ty),*
        );
        calls!(
            extern "C-unwind" fn($($ty),*) -> R, [] extern "C-unwind" fn($($ty),*) -> R,
            R, $($name $ty),*
        );
        calls!(
            unsafe extern "C" fn($($ty),*) -> R, [unsafe] extern "C-unwind" fn($($ty),*) -> R,
            R, $($name $ty),*
        );
        calls!(
            unsafe extern "C-unwind" fn($($ty),*) -> R,
            [unsafe] extern "C-unwind" fn($($ty),*) -> R,
            R, $($name $ty),*
        );
    )*};
}

signatures! {
    (), (a A), (a A, b B), (a A, b B, c C), (a A, b B, c C, d D), (a A, b B, c C, d D, e E),
    (a A, b B, c C, d D, e E, f G), (a A, b B, c C, d D, e E, f G, g H),
    (a A, b B, c C, d D, e E, f G, g H, h I), (a A, b B, c C, d D, e E, f G, g H, h I, i J),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L, l M),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L, l M, m N),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L, l M, m N, n O),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L, l M, m N, n O, o P),
    (a A, b B, c C, d D, e E, f G, g H, h I, i J, j K, k L, l M, m N, n O, o P, p Q),
}
