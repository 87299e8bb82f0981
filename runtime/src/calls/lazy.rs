//! Functions whose IR is produced when they are first called.
//!
//! Until then a function is its *placeholder*, a body of IR of its type, which calls the host to
//! have the body produced, and then itself, through its stub:
//!
//! ```text
//! call f ─ stub ─ placeholder ─ host: produce, replace f's body ─ stub ─ f's body
//! ```
//!
//! So it is a function of IR from the start: it has its address, can be inlined by nobody before it is
//! there, is compiled, tiered and replaced as any other. To define it again replaces the body by a
//! new placeholder, at the next call.
//!
//! # Why
//! Not a unit: a unit's function has a stub of its own, and each call of IR behind it would take two.
//! The stub's address is read from memory by a volatile load: calls of a function by itself need
//! not go through its stub, and passes make a loop of one that comes last.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::FunctionValue;

use super::host::{Code, HostFn, placeholder};
use super::types::{FunctionType, Piece, split};
use super::value::Signature;
use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::jit::{Jit, WeakJit};
use crate::fork::gate;
use crate::load::names::Definition;
use crate::replace::Replacement;

/// What a closure that produces IR may fail with.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The body of a function could not be produced.
#[derive(Debug, Clone)]
struct NotProduced {
    function: Arc<str>,
    cause: Arc<str>,
}

impl fmt::Display for NotProduced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no body: {}", self.function, self.cause)
    }
}

impl std::error::Error for NotProduced {}

/// The module has no function that may take the placeholder's place.
#[derive(Debug, Clone, thiserror::Error)]
enum Unfit {
    #[error("the module does not define it")]
    Missing,
    #[error("the module has it as {actual}, and it was defined as {wanted}")]
    Type { actual: String, wanted: String },
    #[error("its {0} is gone")]
    Gone(&'static str),
}

/// Whoever calls a placeholder has the body produced, or waits until it is.
///
/// The placeholder's code has its address, and may run as long as the session lives; what was
/// captured goes earlier: with the first call, when the function is defined again, or removed.
struct Producer<G> {
    jit: WeakJit,
    dylib: Arc<str>,
    name: Arc<str>,
    /// Of the placeholder's module, which no other has.
    file: Arc<str>,
    ty: FunctionType,
    generate: ArcSwapOption<G>,
    done: OnceLock<Result<(), NotProduced>>,
}

/// A producer that nobody is going to ask any more.
pub(super) trait Lapse: Send + Sync {
    /// Drops what it has captured, unless it is in use.
    fn lapse(&self);
}

impl<G: Send + Sync> Lapse for Producer<G> {
    fn lapse(&self) {
        drop(self.take());
    }
}

impl<G> Producer<G> {
    fn take(&self) -> Option<Arc<G>> {
        self.generate.swap(None)
    }
}

impl<G: Fn(&Module<'_>) -> Result<(), Failure>> Producer<G> {
    fn produce(&self) -> Result<(), NotProduced> {
        let done = self.done.get_or_init(|| {
            let Some(generate) = self.take() else {
                // It was defined again: its stub leads to what it is now.
                return Ok(());
            };
            self.put_in_place(generate).map_err(|cause| NotProduced {
                function: Arc::clone(&self.name),
                cause: cause.to_string().into(),
            })
        });
        match done {
            Ok(()) if self.is_undone() => Err(NotProduced {
                function: Arc::clone(&self.name),
                cause: "it was produced, and that was rolled back".into(),
            }),
            done => done.clone(),
        }
    }

    /// Whether the function is the placeholder again, which would ask for ever.
    fn is_undone(&self) -> bool {
        let Some(jit) = self.jit.upgrade() else {
            return false;
        };
        let Some(dylib) = jit.dylib(&self.dylib) else {
            return false;
        };
        let _pass = gate::enter();
        let core = jit.core();
        let Some(Definition::Function { id }) = core.names.find_own(&dylib.dylib, &self.name)
        else {
            return false;
        };
        let function = core.function(id);
        function.is_some_and(|it| it.module.readers.bitcode().name() == &*self.file)
    }

    fn put_in_place(&self, generate: Arc<G>) -> Result<(), Failure> {
        let jit = self.jit.upgrade().ok_or(Unfit::Gone("session"))?;
        let dylib = jit.dylib(&self.dylib).ok_or(Unfit::Gone("dylib"))?;
        let context = Context::create();
        let module = context.create_module(&self.name);
        generate(&module)?;
        drop(generate);
        let function = module.get_function(&self.name);
        let function = function.filter(|function| function.count_basic_blocks() != 0);
        let actual = text_of(function.ok_or(Unfit::Missing)?, &self.ty);
        if !self.ty.agrees(&actual) {
            let wanted = self.ty.to_string();
            return Err(Unfit::Type { actual, wanted }.into());
        }
        // Front ends differ in how they mark what is the same call.
        dylib.replace(Replacement::module(&module).allow_signatures(true))?;
        Ok(())
    }
}

/// A function's type in LLVM's words, with the arguments marked that lie in memory; `wanted` says
/// how large they are.
fn text_of(function: FunctionValue<'_>, wanted: &FunctionType) -> String {
    let text = function.get_type().print_to_string();
    let text = text.to_string_lossy();
    let Some((result, parameters)) = split(&text) else {
        return text.into_owned();
    };
    let (_, pieces) = wanted.pieces();
    let marked = |index: u32, kind: &str| {
        let kind = Attribute::get_named_enum_kind_id(kind);
        let place = AttributeLoc::Param(index);
        function.get_enum_attribute(place, kind).is_some()
    };
    let each = (0..).zip(parameters).map(|(index, plain)| {
        let piece = pieces.get(index as usize);
        let expected = match piece {
            Some(Piece::ByVal(_)) => "byval",
            _ => "sret",
        };
        let other = if expected == "byval" { "sret" } else { "byval" };
        match piece {
            Some(piece) if marked(index, expected) => piece.to_string(),
            _ if marked(index, expected) || marked(index, other) => format!("{plain} in memory"),
            _ => plain.to_owned(),
        }
    });
    format!("{result} ({})", each.collect::<Vec<_>>().join(", "))
}

impl Dylib {
    /// Defines a function of type `F` whose IR `generate` writes into a module, when the function is
    /// first called, on the calling thread. The module defines the function under its name, and
    /// whatever it needs of its own. To define the name again is to redefine it: the next call asks
    /// the new closure, who is inside goes on in the old body.
    ///
    /// Other calls wait meanwhile. If `generate` fails the call does, as by an error of a function of
    /// the host ([`HostResult`](crate::HostResult)): with a [`Trap`](crate::Trap) where it is
    /// guarded, else by a panic; and so do later ones, until the function is redefined. A closure that
    /// calls its own function waits for itself.
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

    /// As [`Dylib::define_lazy`], of a type that is known when the program runs.
    ///
    /// # Errors
    /// As there.
    pub fn define_lazy_as(
        &self,
        name: &str,
        ty: FunctionType,
        generate: impl Fn(&Module<'_>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only to be told apart.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file: Arc<str> = format!("placeholder {number} of {name}").into();
        let producer = Producer {
            jit: self.jit.downgrade(),
            dylib: self.name().into(),
            name: name.into(),
            file: Arc::clone(&file),
            ty: ty.clone(),
            generate: ArcSwapOption::from_pointee(generate),
            done: OnceLock::new(),
        };
        let producer = Arc::new(producer);
        let asked = Arc::clone(&producer);
        let host = (move || asked.produce()).into_host();
        let Code::With { address, state, at } = host.code else {
            unreachable!("the closure has state");
        };
        let core = self.jit.core();
        let known = {
            let _pass = gate::enter();
            core.host.keep(state);
            core.names.find_own(&self.dylib, name)
        };
        let ir = placeholder(name, &ty, address, at);
        match known {
            Some(Definition::Function { .. }) => {
                self.replace(Replacement::ir(&file, &ir))?;
            }
            _ => self.add_ir(&file, &ir)?,
        }
        self.note_lazy(name, producer)
    }

    /// Has what a producer captured go with its function, or with the next definition.
    fn note_lazy(&self, name: &str, producer: Arc<dyn Lapse>) -> Result<(), Error> {
        let core = self.jit.core();
        let before = {
            let _pass = gate::enter();
            let Some(Definition::Function { id }) = core.names.find_own(&self.dylib, name) else {
                return Ok(());
            };
            core.host.note_lazy(id, producer)
        };
        // What was captured is dropped without a lock: it may use the session.
        if let Some(before) = before {
            before.lapse();
        }
        Ok(())
    }
}

impl Jit {
    /// [`Dylib::define_lazy`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn define_lazy<F: Signature>(
        &self,
        name: &str,
        generate: impl Fn(&Module<'_>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.main().define_lazy::<F>(name, generate)
    }
}
