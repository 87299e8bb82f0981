//! Functions whose IR is produced at their first call.
//!
//! Until then a function is its *placeholder*, a body of IR of its type. It calls the host to
//! produce the body, and then the address that the host returns:
//!
//! ```text
//! call f ─ stub ─ placeholder ─ host: produce f's first body ─ f's stub ─ f's body
//! ```
//!
//! So it is a function of IR from the start. It has its address, its placeholder is compiled as any
//! body is, and it is tiered and replaced as any other. Defining it again replaces the body by a
//! new placeholder, at the next call.
//!
//! | the function has | a call of the placeholder, also an earlier one that waits | |
//! |---|---|---|
//! | this placeholder, and no thread produces its body ([`Production`]) | produces it, and publishes it in a turn of replacements ([`FirstBody`]) | continues in the body |
//! | this placeholder, and another thread produces it | waits | continues in the body |
//! | this placeholder, and its body could not be produced | fails | until it is defined again |
//! | another body: it was replaced, or defined again, even during production | drops the produced body | continues in that body |
//! | none, and the name is another function of this type | the same | continues in that function |
//! | none: it was removed | the same | fails |
//!
//! The closure is kept until its body is published, or the placeholder can never be restored (a
//! rollback can); then it is dropped.
//!
//! # Why
//! Not a unit: a unit's function has a stub of its own, and each call of IR behind it would take
//! two. The host returns the target, so that a call continues at the current definition of the name
//! if the function was removed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::FunctionValue;
use uruk_session::SessionError;

use super::host::{HostCode, HostFn, placeholder};
use super::lapsing::note_lazy;
use super::production::{Production, ProductionState, ProductionWork};
use super::types::{FunctionType, Piece, split};
use crate::api::dylib::Dylib;
use crate::api::jit::WeakJit;
use crate::api::tracker::Tracker;
use crate::calls::producer::Lazy;
use crate::code::host_state::FILE_MARK;
use crate::code::module::Module as CodeModule;
use crate::code::names::Definition;
use crate::error::Error;
use crate::error::replace::ReplaceError;
use crate::fork::gate;
use crate::replace::Replacement;
use crate::replace::first::FirstBody;
use crate::replace::first::put_first_body;

/// An error of a closure that produces IR.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

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

/// The module has no function that can replace the placeholder.
#[derive(Debug, Clone, thiserror::Error)]
enum Unfit {
    #[error("the module does not define it")]
    Missing,
    #[error("the module has it as {actual}, and it was defined as {wanted}")]
    Type { actual: String, wanted: String },
    #[error("its {0} is gone")]
    Gone(&'static str),
    #[error("it was removed")]
    Removed,
    #[error("it was defined anew as {actual}, and this call is of {wanted}")]
    Other { actual: String, wanted: String },
    #[error("its first body was taken back")]
    Back,
    #[error("it is called while it is produced, by what produces it")]
    Itself,
}

/// The producer of a body. The placeholder's code contains its address, and holds it.
struct Producer<G> {
    jit: WeakJit,
    dylib: Arc<str>,
    name: Arc<str>,
    /// The file of the placeholder's module, a unique name.
    file: Arc<str>,
    ty: FunctionType,
    generate: ArcSwapOption<G>,
    production: Production,
    failure: OnceLock<NotProduced>,
}

impl<G: Send + Sync> Lazy for Producer<G> {
    fn file(&self) -> &str {
        &self.file
    }

    fn lapse(&self) {
        drop(self.generate.swap(None));
    }

    fn after_fork_child(&self) {
        self.production.after_fork_child();
    }
}

impl<G: Fn(&Module<'_>) -> Result<(), Failure>> Producer<G> {
    /// The address where a call of the placeholder continues.
    fn produce(&self) -> Result<*const u8, NotProduced> {
        loop {
            let work = match self.production.enter() {
                ProductionState::Work(work) => Some(work),
                ProductionState::Itself => return Err(self.failed(&Unfit::Itself)),
                ProductionState::Ended => None,
            };
            if self.is_placeholder() {
                if let Some(failure) = self.failure.get() {
                    return Err(failure.clone());
                }
                let generate = self.generate.load_full();
                let (Some(generate), Some(work)) = (generate, work) else {
                    return Err(self.failed(&Unfit::Back));
                };
                self.put_in_place(&*generate, work)?;
            }
            // None only if a rollback restored the placeholder meanwhile.
            if let Some(address) = self.target().map_err(|cause| self.failed(&cause))? {
                return Ok(address);
            }
        }
    }

    fn failed(&self, cause: &dyn fmt::Display) -> NotProduced {
        NotProduced {
            function: Arc::clone(&self.name),
            cause: cause.to_string().into(),
        }
    }

    /// Whether the placeholder is the function's body.
    fn is_placeholder(&self) -> bool {
        let jit = self.jit.upgrade();
        let dylib = jit.as_ref().and_then(|jit| jit.dylib(&self.dylib));
        dylib.is_some_and(|dylib| {
            self.first()
                .function(dylib.jit.session(), &dylib.dylib)
                .is_some()
        })
    }

    fn first(&self) -> FirstBody<'_> {
        FirstBody {
            name: &self.name,
            file: &self.file,
        }
    }

    /// The current definition of the name, unless that is the placeholder.
    fn target(&self) -> Result<Option<*const u8>, Unfit> {
        let jit = self.jit.upgrade().ok_or(Unfit::Gone("session"))?;
        let dylib = jit.dylib(&self.dylib).ok_or(Unfit::Gone("dylib"))?;
        let session = jit.session();
        let _pass = gate::enter();
        let found = session.names.find_own(&dylib.dylib, &self.name);
        let Some(Definition::Function { id }) = found else {
            return Err(Unfit::Removed);
        };
        let body = session.body(id).ok_or(Unfit::Removed)?;
        if body.is_of_file(&self.file) {
            return Ok(None);
        }
        if let Some(function) = session.function(id)
            && let Ok(actual) = CodeModule::type_of(&function.module, function.symbol)
            && !self.ty.agrees(&actual)
        {
            let wanted = self.ty.to_string();
            let actual = actual.to_string();
            return Err(Unfit::Other { actual, wanted });
        }
        Ok(Some(session.passed_stub(id) as *const u8))
    }

    /// Produces the body and publishes it, unless the function has another one by then.
    fn put_in_place(&self, generate: &G, work: ProductionWork<'_>) -> Result<(), NotProduced> {
        match self.publish(generate) {
            Ok(true) => {
                work.end();
                self.generate.swap(None);
                Ok(())
            }
            Ok(false) => Ok(()),
            // An error is irrelevant if the function has another body.
            Err(_) if !self.is_placeholder() => Ok(()),
            // A handler interrupted its thread's replacement: later calls may succeed.
            Err(cause) if is_nested(&*cause) => Err(self.failed(&*cause)),
            Err(cause) => {
                let failure = self.failed(&*cause);
                let failure = self.failure.get_or_init(|| failure).clone();
                work.end();
                self.generate.swap(None);
                Err(failure)
            }
        }
    }

    fn publish(&self, generate: &G) -> Result<bool, Failure> {
        let jit = self.jit.upgrade().ok_or(Unfit::Gone("session"))?;
        let dylib = jit.dylib(&self.dylib).ok_or(Unfit::Gone("dylib"))?;
        let context = Context::create();
        let module = context.create_module(&self.name);
        generate(&module)?;
        let function = module.get_function(&self.name);
        let function = function.filter(|function| function.count_basic_blocks() != 0);
        let actual = text_of(function.ok_or(Unfit::Missing)?, &self.ty);
        if !self.ty.agrees(&actual) {
            let wanted = self.ty.to_string();
            return Err(Unfit::Type { actual, wanted }.into());
        }
        // Front ends mark the same call in different ways.
        let body = Replacement::module(&module).allow_signatures(true);
        Ok(put_first_body(
            (&jit.session().replacing, Arc::new(jit.clone())),
            &dylib.dylib,
            body,
            &self.first(),
        )?)
    }
}

fn is_nested(cause: &(dyn std::error::Error + 'static)) -> bool {
    match cause.downcast_ref() {
        Some(Error::Replace(cause)) => **cause == ReplaceError::Nested,
        _ => false,
    }
}

/// Whether there was no definition to replace.
fn is_nothing(cause: &Error) -> bool {
    match cause {
        Error::Replace(cause) => {
            matches!(
                **cause,
                ReplaceError::Nothing { .. } | ReplaceError::Removed { .. }
            )
        }
        _ => false,
    }
}

/// Whether another definition came first.
fn is_duplicate(cause: &Error) -> bool {
    matches!(
        cause,
        Error::DuplicateSymbol { .. } | Error::Session(SessionError::Duplicate(_))
    )
}

/// A function's type as LLVM writes it, with marks on arguments in memory; `wanted` gives their
/// sizes.
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

/// Defines a function whose IR `generate` writes at its first call; under the default tracker if
/// none is given.
pub(crate) fn define_lazy_under(
    dylib: &Dylib,
    name: &str,
    ty: FunctionType,
    generate: impl Fn(&Module<'_>) -> Result<(), Failure> + Send + Sync + 'static,
    under: Option<&Tracker>,
) -> Result<(), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: the number must only be unique.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let file: Arc<str> = format!("{name}{FILE_MARK}{number})").into();
    let producer = Producer {
        jit: dylib.jit.downgrade(),
        dylib: dylib.name().into(),
        name: name.into(),
        file: Arc::clone(&file),
        ty: ty.clone(),
        generate: ArcSwapOption::from_pointee(generate),
        production: Production::default(),
        failure: OnceLock::new(),
    };
    let producer = Arc::new(producer);
    let asked = Arc::clone(&producer);
    let host = (move || asked.produce()).into_host();
    let HostCode::With { address, state, at } = host.code else {
        unreachable!("the closure has state");
    };
    let session = dylib.jit.session();
    {
        let _pass = gate::enter();
        session.host.announce(&file, state);
    }
    let ir = placeholder(name, &ty, address, at);
    let is_function = || {
        let _pass = gate::enter();
        let known = session.names.find_own(&dylib.dylib, name);
        matches!(known, Some(Definition::Function { .. }))
    };
    // Whether it is defined as something other than a function.
    let is_other = || {
        let _pass = gate::enter();
        let known = session.names.find_own(&dylib.dylib, name);
        known.is_some_and(|it| !matches!(it, Definition::Function { .. }))
    };
    let replaced = || dylib.replace(Replacement::ir(&file, &ir)).map(drop);
    let add = || match under {
        None => dylib.add_ir(&file, &ir),
        Some(tracker) => tracker.add_ir(&file, &ir),
    };
    // Another thread may define it meanwhile, and the later definition redefines it; or remove it.
    let added = loop {
        match is_function() {
            true => match replaced() {
                Err(cause) if is_nothing(&cause) => {}
                done => break done,
            },
            false => match add() {
                Err(cause) if is_duplicate(&cause) && !is_other() => {}
                added => break added,
            },
        }
    };
    {
        let _pass = gate::enter();
        session.host.came(&file, added.is_ok());
    }
    added?;
    note_lazy(dylib, name, producer);
    Ok(())
}
