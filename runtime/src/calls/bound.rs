//! Functions of the host under their names, and their types against declarations.
//!
//! A declaration is compared when it and the function meet: when a module is added that declares a
//! name which means a function of the host, or when the function is defined and a module was added
//! before that waits for it. A module is not asked for its types if it declares no such name.
//!
//! Invariant: a function stays in the table, and its state lives, as long as the session: code that was
//! compiled against it may run as long. The state of a placeholder (`lazy`) lives as long as its
//! module, and as the code that was compiled from it or has its body inlined.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, RwLock};
use uruk_codegen::{Kind, Linkage, SymbolId};
use uruk_session::Dylib as Names;

use super::host::{Code, HostFn, HostFunction, forwarding};
use super::lazy::Lazy;
use super::types::FunctionType;
use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::jit::Jit;
use crate::api::tracker::Tracker;
use crate::core::{Core, Module};
use crate::fork::gate;
use crate::load::image::Image;
use crate::load::names::{Definition, Name};

/// By name: the addresses it has in dylibs, and how what is there is called.
type Types = HashMap<Box<str>, Vec<(u64, FunctionType)>>;

/// State of a closure that code refers to.
pub(crate) type State = Arc<dyn Any + Send + Sync>;

/// The host's functions of a session.
#[derive(Default)]
pub(crate) struct HostFunctions {
    /// By name, with their addresses: the same code may be there for functions of several types.
    types: RwLock<Types>,
    states: Mutex<Vec<State>>,
    /// States that modules which are about to be read refer to, by their files, and whether such
    /// a module was read.
    coming: Mutex<HashMap<Arc<str>, (State, bool)>>,
    /// Producers of functions whose placeholder is their body, or can become it again.
    lazy: Mutex<HashMap<FunctionId, Vec<Arc<dyn Lazy>>>>,
}

impl HostFunctions {
    fn note(&self, address: u64, name: &str, ty: &FunctionType) {
        let mut types = self.types.write().unwrap_or_else(PoisonError::into_inner);
        types
            .entry(name.into())
            .or_default()
            .push((address, ty.clone()));
    }

    pub(super) fn keep(&self, state: State) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.push(state);
    }

    /// Has the module of a file, which no other has, hold a state, and all code that is made of
    /// its functions; until [`HostFunctions::came`].
    pub(super) fn announce(&self, file: &Arc<str>, state: State) {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        coming.insert(Arc::clone(file), (state, false));
    }

    /// Says that the module of a file was added, or not at all. A state that it does not hold
    /// stays with the session.
    pub(super) fn came(&self, file: &str, added: bool) {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let found = coming.remove(file);
        drop(coming);
        match found {
            Some((state, false)) if added => self.keep(state),
            // The state may be the embedder's, with a destructor of its own.
            found => gate::outside(|| drop(found)),
        }
    }

    /// The state that the module of a file refers to.
    pub(crate) fn state_for(&self, file: &str) -> Option<State> {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, held) = coming.get_mut(file)?;
        *held = true;
        Some(Arc::clone(state))
    }

    /// Notes the producer of a function; how many it has.
    pub(super) fn note_lazy(&self, id: FunctionId, producer: Arc<dyn Lazy>) -> usize {
        let mut lazy = self.lazy.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lazy.entry(id).or_default();
        all.push(producer);
        all.len()
    }

    /// Takes the producers of a function that are not of use any more.
    pub(super) fn lapsed(
        &self,
        id: FunctionId,
        of_use: impl Fn(&dyn Lazy) -> bool,
    ) -> Vec<Arc<dyn Lazy>> {
        let mut lazy = self.lazy.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lazy.get_mut(&id);
        let lapsed = all.map(|all| all.extract_if(.., |it| !of_use(&**it)).collect());
        lapsed.unwrap_or_default()
    }

    /// Drops the producers of a function that goes.
    pub(crate) fn forget_lazy(&self, id: FunctionId) {
        let mut lazy = self.lazy.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = lazy.remove(&id);
        drop(lazy);
        for gone in gone.into_iter().flatten() {
            gate::outside(|| gone.lapse());
        }
    }

    /// In the child of a fork: no thread produces anything.
    pub(crate) fn after_fork_child(&self) {
        let lazy = self.lazy.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lazy.values().flatten();
        all.for_each(|producer| producer.after_fork_child());
    }

    /// The type of what `name` means, if that is a function of the host at `address`.
    fn type_at(&self, name: &str, address: u64) -> Option<FunctionType> {
        let types = self.types.read().unwrap_or_else(PoisonError::into_inner);
        // The last of them: an address may be used again.
        let of_name = types.get(name)?.iter().rev();
        let mut found = of_name.filter(|(at, _)| *at == address);
        found.next().map(|(_, ty)| ty.clone())
    }

    fn is_name(&self, name: &str) -> bool {
        let types = self.types.read().unwrap_or_else(PoisonError::into_inner);
        types.contains_key(name)
    }
}

/// A function that `module` declares under a name that `wanted` says yes to.
fn declared(module: &Module, wanted: impl Fn(&str) -> bool) -> Vec<(SymbolId, String)> {
    let symbols = module.readers.summary().symbols.iter().enumerate();
    let functions = symbols.filter(|(_, info)| {
        info.kind == Kind::Function && info.linkage == Linkage::Declared && wanted(&info.name)
    });
    functions
        .map(|(index, info)| (SymbolId(index as u32), info.name.clone()))
        .collect()
}

/// Compares a declaration with what the host has.
fn compare(
    module: &Arc<Module>,
    symbol: SymbolId,
    name: &str,
    ty: &FunctionType,
) -> Result<(), Error> {
    let declared = Module::type_of(module, symbol)?;
    match ty.agrees(&declared) {
        true => Ok(()),
        false => Err(Error::HostSignature {
            file: module.readers.bitcode().name().to_owned(),
            function: name.to_owned(),
            declared: declared.to_string(),
            defined: ty.to_string(),
        }),
    }
}

impl Core {
    /// Compares what the modules of an image declare with the host's functions of these names.
    pub(crate) fn check_host_types(&self, image: &Image) -> Result<(), Error> {
        for (_, module) in &image.modules {
            for (symbol, name) in declared(module, |name| self.host.is_name(name)) {
                let Some(found) = self.names.find(&module.dylib, &name) else {
                    continue;
                };
                let address = match found {
                    Definition::Function { id } => self.stubs.stub_address(id).0,
                    Definition::Address(address) => address,
                    Definition::Tls { .. } => continue,
                };
                if let Some(ty) = self.host.type_at(&name, address) {
                    compare(module, symbol, &name, &ty)?;
                }
            }
        }
        Ok(())
    }

    /// Compares what modules declare that wait for a name with the function it is to mean in
    /// `dylib`.
    fn check_waiting_types(
        &self,
        dylib: &Names,
        name: &str,
        ty: &FunctionType,
    ) -> Result<(), Error> {
        for module in self.modules.live() {
            let order = module.dylib.search_order();
            if !order.iter().any(|(searched, _)| searched == dylib) {
                continue;
            }
            for (symbol, name) in declared(&module, |declared| declared == name) {
                if self.names.find(&module.dylib, &name).is_none() {
                    compare(&module, symbol, &name, ty)?;
                }
            }
        }
        Ok(())
    }
}

impl Dylib {
    /// Gives a name to a function or closure of the host. Its type is compared with the
    /// declarations of modules that call it.
    ///
    /// A function, and a closure that captures nothing, is called directly. Others are called with
    /// their state, which lives as long as the session. Functions that return `Result` can end the
    /// call that JIT'd code was called by ([`HostResult`](crate::HostResult)). A panic unwinds JIT'd
    /// code as a C++ exception does.
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

    /// [`Dylib::define_fn`] of each, all or none.
    ///
    /// ```
    /// use uruk::HostFunction;
    ///
    /// fn sign(x: i64) -> i64 {
    ///     x.signum()
    /// }
    /// let jit = uruk::Jit::new()?;
    /// jit.define_fns([
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
    /// As there.
    pub fn define_fns<'n>(
        &self,
        functions: impl IntoIterator<Item = (&'n str, HostFunction)>,
    ) -> Result<(), Error> {
        self.define_fns_under(functions.into_iter().collect(), None)
    }

    /// Under the default tracker without another one.
    fn define_fns_under(
        &self,
        functions: Vec<(&str, HostFunction)>,
        under: Option<&Tracker>,
    ) -> Result<(), Error> {
        let core = self.jit.core();
        self.check_new(&functions)?;
        let mut direct = Vec::new();
        let mut ir = String::new();
        let mut with_state: Vec<(&str, FunctionType, Arc<dyn Any + Send + Sync>)> = Vec::new();
        for (name, HostFunction { ty, code }) in functions {
            match code {
                Code::At(address) => direct.push((name, ty, address)),
                Code::With { address, state, at } => {
                    ir += &forwarding(name, &ty, address, at);
                    with_state.push((name, ty, state));
                }
                Code::Receiving(receiver) => {
                    ir += &receiver.forwarding(name, &ty);
                    with_state.push((name, ty, receiver));
                }
            }
        }
        self.define_with_state(&ir, with_state, under)?;
        let define = |tracker: &uruk_session::Tracker| {
            let names = direct
                .iter()
                .map(|&(name, _, address)| Name::strong(name, Definition::Address(address)));
            let names: Vec<Name> = names.collect();
            core.change_names(|| {
                for (name, ty, address) in &direct {
                    core.host.note(*address, name, ty);
                }
                core.names.define(tracker, names)
            })
        };
        match under {
            None => self.in_default_tracker(define),
            Some(tracker) => define(&tracker.tracker),
        }
    }

    /// Whether functions may be defined under these names.
    fn check_new(&self, functions: &[(&str, HostFunction)]) -> Result<(), Error> {
        let core = self.jit.core();
        let _pass = gate::enter();
        for (index, (name, function)) in functions.iter().enumerate() {
            let twice = functions[..index].iter().any(|(before, _)| before == name);
            if twice || core.names.is_own(&self.dylib, name) {
                return Err(Error::DuplicateSymbol {
                    symbol: (*name).to_owned(),
                    first: match twice {
                        true => String::from("the host"),
                        false => format!("dylib {}", self.name()),
                    },
                    second: String::from("the host"),
                });
            }
            core.check_waiting_types(&self.dylib, name, &function.ty)?;
        }
        Ok(())
    }

    /// Defines functions that `ir` defines, which refer to their states.
    fn define_with_state(
        &self,
        ir: &str,
        functions: Vec<(&str, FunctionType, Arc<dyn Any + Send + Sync>)>,
        under: Option<&Tracker>,
    ) -> Result<(), Error> {
        if functions.is_empty() {
            return Ok(());
        }
        let host = &self.jit.core().host;
        let names: Vec<&str> = functions.iter().map(|(name, ..)| *name).collect();
        let file = format!("functions of the host: {}", names.join(", "));
        match under {
            None => self.add_ir(&file, ir)?,
            Some(tracker) => tracker.add_ir(&file, ir)?,
        }
        {
            // Only now: what could not be defined is not kept.
            let _pass = gate::enter();
            for (.., state) in &functions {
                host.keep(Arc::clone(state));
            }
        }
        for (name, ty, _) in &functions {
            let address = self.lookup(name)?;
            let _pass = gate::enter();
            host.note(address, name, ty);
        }
        Ok(())
    }
}

impl Tracker {
    /// Like [`Dylib::define_fn`], under this tracker: the name goes when it is removed. What the
    /// function needs is kept as long as the session.
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

    /// [`Tracker::define_fn`] of each, all or none.
    ///
    /// # Errors
    /// Those of [`Tracker::define_fn`].
    pub fn define_fns<'n>(
        &self,
        functions: impl IntoIterator<Item = (&'n str, HostFunction)>,
    ) -> Result<(), Error> {
        self.dylib()
            .define_fns_under(functions.into_iter().collect(), Some(self))
    }
}

impl Jit {
    /// Keeps a value as long as the session: it is dropped when the session's code can not be
    /// called any more.
    pub fn keep(&self, value: Arc<dyn Any + Send + Sync>) {
        let _pass = gate::enter();
        self.core().host.keep(value);
    }

    /// [`Dylib::define_fn`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn define_fn<M>(&self, name: &str, f: impl HostFn<M>) -> Result<(), Error> {
        self.main().define_fn(name, f)
    }

    /// [`Dylib::define_fns`] of [`Jit::main`].
    ///
    /// # Errors
    /// As there.
    pub fn define_fns<'n>(
        &self,
        functions: impl IntoIterator<Item = (&'n str, HostFunction)>,
    ) -> Result<(), Error> {
        self.main().define_fns(functions)
    }
}
