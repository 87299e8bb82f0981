//! Functions by kind: of the host, with lazily generated IR, and with dynamically typed arguments;
//! and OSR of their loops.

use std::any::Any;
use std::sync::Arc;

use inkwell::module::Module;

use super::dylib::Dylib;
use super::func::Func;
use super::jit::Jit;
use super::tracker::Tracker;
use crate::calls::bound::define_fns_under;
use crate::calls::dynamic::{DynFunc, compared};
use crate::calls::host::{HostFn, HostFunction};
use crate::calls::lazy::{Failure, define_lazy_under};
use crate::calls::types::FunctionType;
use crate::calls::value::Signature;
use crate::error::Error;
use crate::fork::gate;

impl Dylib {
    /// Defines a name for a function or closure of the host. Its type is compared with the
    /// declarations of modules that call it.
    ///
    /// A function, and a closure that captures nothing, is called directly. Other closures are
    /// called with their state. The state is dropped when the function was removed and no code can
    /// call it any more, or with the session. Functions that return `Result` can end the call that
    /// entered JIT'd code ([`HostResult`](crate::HostResult)). A panic unwinds JIT'd code as a C++
    /// exception does.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicI64, Ordering};
    ///
    /// let total = Arc::new(AtomicI64::new(0));
    /// let of_host = Arc::clone(&total);
    /// let jit = uruk::Jit::new()?;
    /// jit.define_fn("half", |x: f64| x / 2.0)?;
    /// jit.define_fn("add", move |x: i64| of_host.fetch_add(x, Ordering::Relaxed))?;
    /// jit.add_ir("m", "declare double @half(double)
    ///   declare i64 @add(i64)
    ///   define double @f(double %x) {
    ///     %n = call i64 @add(i64 42)
    ///     %y = call double @half(double %x)
    ///     ret double %y
    ///   }")?;
    /// // SAFETY: the function above.
    /// let f = unsafe { jit.function::<extern "C" fn(f64) -> f64>("f")? };
    /// assert_eq!((f.call(3.0), total.load(Ordering::Relaxed)), (1.5, 42));
    ///
    /// let wrong = jit.add_ir("w", "declare i64 @half(i64)
    ///   define i64 @g() { %x = call i64 @half(i64 2) ret i64 %x }");
    /// assert_eq!(
    ///     wrong.unwrap_err().to_string(),
    ///     "w: `half` is declared as i64 (i64), and the host's is double (double)",
    /// );
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// The name is defined already, or a module that waits for it declares another type
    /// ([`Error::HostSignature`]).
    pub fn define_fn<M>(&self, name: &str, f: impl HostFn<M>) -> Result<(), Error> {
        self.define_fns([(name, f.into_host())])
    }

    /// Calls [`Dylib::define_fn`] for each function: all are defined, or none.
    ///
    /// ```
    /// use uruk::HostFunction;
    ///
    /// fn sign(x: i64) -> i64 {
    ///     x.signum()
    /// }
    /// let jit = uruk::Jit::new()?;
    /// jit.main().define_fns([
    ///     ("sign", HostFunction::new(sign)),
    ///     ("max", HostFunction::new(|a: i64, b: i64| a.max(b))),
    /// ])?;
    /// jit.add_ir("m", "declare i64 @sign(i64)
    ///   declare i64 @max(i64, i64)
    ///   define i64 @f(i64 %x) {
    ///     %s = call i64 @sign(i64 %x)
    ///     %m = call i64 @max(i64 %s, i64 0)
    ///     ret i64 %m
    ///   }")?;
    /// // SAFETY: the function above.
    /// let f = unsafe { jit.function::<extern "C" fn(i64) -> i64>("f")? };
    /// assert_eq!((f.call(-7), f.call(7)), (0, 1));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Dylib::define_fn`].
    pub fn define_fns<'n>(
        &self,
        functions: impl IntoIterator<Item = (&'n str, HostFunction)>,
    ) -> Result<(), Error> {
        define_fns_under(self, functions.into_iter().collect(), None)
    }

    /// Defines a function of type `F` whose IR `generate` writes into a module, when the function
    /// is first called, on the calling thread. The module defines the function under its name, and
    /// any helpers it needs. Defining the name again redefines it: the next call runs the new
    /// closure, and running calls finish in the old body.
    ///
    /// Other calls wait meanwhile. If `generate` fails the call does, as by an error of a function
    /// of the host ([`HostResult`](crate::HostResult)): with a [`Trap`](crate::Trap) where it is
    /// guarded, else by a panic. Later calls fail too, until the function is redefined. A call of
    /// the function by its own closure fails likewise. Closures of two functions that call each
    /// other on two threads wait for each other.
    ///
    /// If a function is redefined, replaced or removed while its first body is produced, that body
    /// is dropped, and the waiting calls continue in the new state. A first body is no replacement:
    /// it cannot be rolled back.
    ///
    /// ```
    /// use uruk::Jit;
    ///
    /// let jit = Jit::new()?;
    /// let define = |factor: u64| {
    ///     jit.main().define_lazy::<extern "C" fn(i64) -> i64>("scale", move |module| {
    ///         let context = module.get_context();
    ///         let word = context.i64_type();
    ///         let ty = word.fn_type(&[word.into()], false);
    ///         let function = module.add_function("scale", ty, None);
    ///         let builder = context.create_builder();
    ///         builder.position_at_end(context.append_basic_block(function, ""));
    ///         let x = function.get_nth_param(0).expect("it has one").into_int_value();
    ///         let y = builder.build_int_mul(x, word.const_int(factor, false), "")?;
    ///         builder.build_return(Some(&y))?;
    ///         Ok(())
    ///     })
    /// };
    /// define(2)?;
    /// // SAFETY: the function above.
    /// let scale = unsafe { jit.function::<extern "C" fn(i64) -> i64>("scale")? };
    /// assert_eq!(scale.call(21), 42);
    /// define(10)?;
    /// assert_eq!(scale.call(21), 210);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// The name is defined as something else, or as a function of another type.
    pub fn define_lazy<F: Signature>(
        &self,
        name: &str,
        generate: impl Fn(&Module<'_>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.define_lazy_as(name, F::function_type(), generate)
    }

    /// Like [`Dylib::define_lazy`], for a type that is known only at run time.
    ///
    /// # Errors
    /// Those of [`Dylib::define_lazy`].
    pub fn define_lazy_as(
        &self,
        name: &str,
        ty: FunctionType,
        generate: impl Fn(&Module<'_>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        define_lazy_under(self, name, ty, generate, None)
    }

    /// A function called with dynamic values, whose types are compared with its own at each call.
    ///
    /// ```
    /// use uruk::Val;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define double @scale(i32 %n, double %x) {
    ///   %f = sitofp i32 %n to double
    ///   %y = fmul double %f, %x
    ///   ret double %y
    /// }")?;
    /// // SAFETY: the function above.
    /// let scale = unsafe { jit.main().dynamic_function("scale")? };
    /// assert_eq!(scale.ty(), "double (i32, double)");
    /// assert_eq!(scale.call(&[Val::I32(2), Val::F64(1.5)])?, Val::F64(3.0));
    /// assert_eq!(
    ///     scale.call(&[Val::I64(2), Val::F64(1.5)]).unwrap_err().to_string(),
    ///     "`scale` is double (i32, double): value 0 is I64(2)",
    /// );
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// As [`Dylib::function`].
    ///
    /// # Errors
    /// Those of [`Dylib::function`]; [`Error::Arguments`] for types that cannot be passed so, and
    /// for functions without a known type.
    pub unsafe fn dynamic_function(&self, name: &str) -> Result<DynFunc, Error> {
        let leased = self.leased(name)?;
        let text = self
            .jit
            .session()
            .function_type(leased.0)?
            .unwrap_or_default();
        DynFunc::new(Func::new(self.jit.clone(), leased), name, &text)
    }

    /// Like [`Dylib::dynamic_function`], for a function without a known type: of an object file, or
    /// of a unit. `ty` is written as LLVM does. For a function of IR the known type is compared
    /// with `ty`.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @f(ptr %p) { %v = ptrtoint ptr %p to i64 ret i64 %v }")?;
    /// // SAFETY: the call asks for another type, which is refused.
    /// let wrong = unsafe { jit.main().dynamic_function_as("f", "i64 (double)") };
    /// assert_eq!(wrong.unwrap_err().to_string(), "function `f` is i64 (ptr), not i64 (double)");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// As [`Dylib::function`]; a function without a type of its own is of this type.
    ///
    /// # Errors
    /// Those of [`Dylib::function`]; [`Error::Signature`] if the function is of another type;
    /// [`Error::Arguments`] for types that cannot be passed so.
    pub unsafe fn dynamic_function_as(&self, name: &str, ty: &str) -> Result<DynFunc, Error> {
        let actual = compared(self, name, ty)?;
        let leased = self.leased(name)?;
        let ty = actual.as_deref().unwrap_or(ty);
        DynFunc::new(Func::new(self.jit.clone(), leased), name, ty)
    }

    /// The address of a function, after its type was compared with `ty`, written as LLVM does. `ty`
    /// may omit the extension attributes of small integers. A function of an object file or of a
    /// unit has no known type, and is not compared.
    ///
    /// # Errors
    /// As [`Dylib::lookup`]; [`Error::Signature`] if the function is of another type,
    /// [`Error::NotAFunction`] for a variable.
    pub fn lookup_as(&self, name: &str, ty: &str) -> Result<u64, Error> {
        compared(self, name, ty)?;
        self.lookup(name)
    }

    /// Compiles OSR continuations, at tier 2, for the loops of a function's versions of tier 1, and
    /// offers them. A thread in one of the loops switches to better code at its next iteration.
    /// Returns the number of loops offered. It is 0 if no version of tier 1 can be left
    /// ([`ContinuationStats::refused`] counts why), or OSR is forbidden.
    ///
    /// Under [`Tiers::Auto`](crate::Tiers::Auto) the policy does this itself, for loops where it
    /// pays off.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`]; errors of a compile, after which earlier
    /// offers stay.
    ///
    /// [`ContinuationStats::refused`]: crate::ContinuationStats::refused
    pub fn osr_loops(&self, name: &str) -> Result<usize, Error> {
        let id = self.id_of(name)?;
        self.jit.session().osr_loops(id)
    }

    /// Forbids OSR for the loops of a function, or allows it again. Offers are withdrawn; a thread
    /// that has left a loop does not return.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn forbid_osr(&self, name: &str, forbidden: bool) -> Result<(), Error> {
        let id = self.id_of(name)?;
        let _busy = gate::enter();
        self.jit.session().forbid_osr(id, forbidden);
        Ok(())
    }
}

impl Tracker {
    /// Like [`Dylib::define_fn`], under this tracker: the name is removed with the tracker. The
    /// function's state is dropped once no code can call it any more.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let tracker = jit.main().create_tracker()?;
    /// tracker.define_fn("half", |x: f64| x / 2.0)?;
    /// assert!(jit.lookup("half").is_ok());
    /// // SAFETY: no code was linked against the function.
    /// unsafe { tracker.remove()? };
    /// assert!(jit.lookup("half").is_err());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Dylib::define_fn`]; the tracker is defunct.
    pub fn define_fn<M>(&self, name: &str, f: impl HostFn<M>) -> Result<(), Error> {
        self.define_fns([(name, f.into_host())])
    }

    /// Calls [`Tracker::define_fn`] for each function: all are defined, or none.
    ///
    /// # Errors
    /// Those of [`Tracker::define_fn`].
    pub fn define_fns<'n>(
        &self,
        functions: impl IntoIterator<Item = (&'n str, HostFunction)>,
    ) -> Result<(), Error> {
        define_fns_under(&self.dylib(), functions.into_iter().collect(), Some(self))
    }

    /// Like [`Dylib::define_lazy`], under this tracker. A function that is already defined is
    /// redefined, and stays under its tracker.
    ///
    /// # Errors
    /// Those of [`Dylib::define_lazy`]; the tracker is defunct.
    pub fn define_lazy<F: Signature>(
        &self,
        name: &str,
        generate: impl Fn(&Module<'_>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        define_lazy_under(
            &self.dylib(),
            name,
            F::function_type(),
            generate,
            Some(self),
        )
    }
}

impl Jit {
    /// Keeps a value as long as the session: it is dropped when the session's code can no longer be
    /// called.
    pub fn keep(&self, value: Arc<dyn Any + Send + Sync>) {
        let _pass = gate::enter();
        self.session().host.keep(value);
    }

    /// Calls [`Dylib::define_fn`] on [`Jit::main`].
    ///
    /// # Errors
    /// As [`Dylib::define_fn`].
    pub fn define_fn<M>(&self, name: &str, f: impl HostFn<M>) -> Result<(), Error> {
        self.main().define_fn(name, f)
    }
}
