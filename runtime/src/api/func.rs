//! Typed functions: checked once, when they are acquired, then called through their
//! slots like a C function pointer.
//!
//! # Why
//! Threads that promise to come in through `Func` only (`FuncOnlyThread`) are neither signalled
//! nor read while they are outside. It is a promise: a function pointer handed to a library
//! passes no place of ours.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk_base::FunctionId;
use uruk_codegen::Kind;
use uruk_roots::{CountedThread, Inside};

use crate::api::error::Error;
use crate::api::jit::Jit;
use crate::core::{Core, Module};
use crate::fork::gate;

impl Core {
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

/// Says that the thread it was made on runs JIT'd code only within [`Func`] calls.
#[derive(Debug)]
pub struct FuncOnlyThread {
    _counted: CountedThread,
}

impl FuncOnlyThread {
    /// Counts the calling thread's calls from now on, so that the search for return addresses
    /// leaves it alone while it is in none: no signal, no reading of its stacks. A call costs
    /// two more stores. At most 256 threads at once; more are searched as ever.
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
    ///    address ([`Func::address`], [`Jit::lookup`]) outside of such a call, nor by
    ///    a callback of a library, a handler of a signal, or the end of a thread-local.
    ///    Nothing passes a place where this could be seen: it has to be promised.
    /// 2. The result is dropped on this thread, not forgotten: its id is given to other
    ///    threads later.
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
    marker: PhantomData<F>,
}

// SAFETY: a slot is an atomic word of the session, which the handle keeps alive;
// what the function itself may be called from is the caller's promise on acquiring.
unsafe impl<F> Send for Func<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for Func<F> {}

impl<F> Clone for Func<F> {
    fn clone(&self) -> Func<F> {
        Func {
            jit: self.jit.clone(),
            id: self.id,
            slot: self.slot,
            marker: PhantomData,
        }
    }
}

impl<F> Func<F> {
    /// A handle of a function whose type was compared already.
    pub(crate) fn new(jit: Jit, id: FunctionId) -> Func<F> {
        let slot = jit.core().stubs.slot_address(id).0 as *const AtomicU64;
        Func {
            jit,
            id,
            slot,
            marker: PhantomData,
        }
    }

    /// The function's address for its whole life, to be passed to C code.
    pub fn address(&self) -> u64 {
        self.jit.core().stubs.stub_address(self.id).0
    }

    pub(crate) fn entry(&self) -> u64 {
        // SAFETY: the slot lives as long as the session that `jit` keeps alive.
        // Acquire: pairs with the release of `StubTable::publish`.
        unsafe { (*self.slot).load(Ordering::Acquire) }
    }
}

/// Types a value may have in a typed function, and LLVM's name of each.
///
/// # Safety
/// `IR` is the type a C compiler passes values of the implementing type as.
pub unsafe trait Value {
    /// LLVM's name.
    const IR: &'static str;
}

macro_rules! values {
    ($($ty:ty => $ir:literal),* $(,)?) => {$(
        // SAFETY: the x86-64 psABI's mapping, as clang emits it.
        unsafe impl Value for $ty { const IR: &'static str = $ir; }
    )*};
}

values! {
    () => "void", bool => "i1", i8 => "i8", u8 => "i8", i16 => "i16", u16 => "i16", i32 => "i32",
    u32 => "i32", i64 => "i64", u64 => "i64", isize => "i64", usize => "i64", f32 => "float",
    f64 => "double",
}

// SAFETY: pointers are opaque in IR.
unsafe impl<T> Value for *const T {
    const IR: &'static str = "ptr";
}
// SAFETY: pointers are opaque in IR.
unsafe impl<T> Value for *mut T {
    const IR: &'static str = "ptr";
}

/// Function pointer types [`Func`] can have: `extern "C" fn` of up to eight values.
///
/// # Safety
/// `ir_type` describes the implementing type.
pub unsafe trait Signature {
    /// The type as LLVM writes it.
    fn ir_type() -> String;
}

macro_rules! signatures {
    ($(($($name:ident $ty:ident),*)),* $(,)?) => {$(
        // SAFETY: built from the values' own names.
        unsafe impl<R: Value, $($ty: Value),*> Signature for extern "C" fn($($ty),*) -> R {
            fn ir_type() -> String {
                let parameters: &[&str] = &[$($ty::IR),*];
                format!("{} ({})", R::IR, parameters.join(", "))
            }
        }

        impl<R: Value, $($ty: Value),*> Func<extern "C" fn($($ty),*) -> R> {
            /// Calls the published version.
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub fn call(&self, $($name: $ty),*) -> R {
                let _inside = Inside::begin();
                // SAFETY: a slot holds ready code or a trampoline that leads to it, and
                // the type was compared on acquiring; the rest was promised there.
                // `C-unwind`, as C++ code may throw through the call.
                let function = unsafe {
                    std::mem::transmute::<u64, extern "C-unwind" fn($($ty),*) -> R>(self.entry())
                };
                function($($name),*)
            }
        }
    )*};
}

signatures! {
    (), (a A), (a A, b B), (a A, b B, c C), (a A, b B, c C, d D), (a A, b B, c C, d D, e E),
    (a A, b B, c C, d D, e E, f G), (a A, b B, c C, d D, e E, f G, g H),
    (a A, b B, c C, d D, e E, f G, g H, h I),
}
