//! Functions of the host under their names, and what they need. Their types: [`super::declared`].
//!
//! Invariant: the state of a function, or of a placeholder (`lazy`), lives as long as the module whose
//! IR refers to it, and as the code that was compiled from it or has its body inlined: a frame of that
//! code lies on the stack while the function runs. It is the embedder's, with a destructor that may use
//! the session: it goes on a thread for code of embedders ([`Parting`]).

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use uruk_base::FunctionId;
use uruk_base::locks::Mutex;

use super::declared::{HostTypes, Typed};
use super::host::{Code, HostFn, HostFunction, forwarding};
use super::lazy::Lazy;
use super::types::FunctionType;
use crate::api::dylib::Dylib;
use crate::api::error::Error;
use crate::api::jit::Jit;
use crate::api::tracker::Tracker;
use crate::fork::gate;
use crate::load::names::{Definition, Name};
use crate::units::hands::Hands;

/// State of the embedder's that goes with code: where that goes, threads hold locks of the session.
struct Parting {
    states: Vec<State>,
    hands: Weak<Hands>,
}

impl Drop for Parting {
    fn drop(&mut self) {
        let states = std::mem::take(&mut self.states);
        match self.hands.upgrade() {
            Some(hands) => hands.start_or_do(move || drop(states)),
            None => drop(states),
        }
    }
}

/// State of a closure that code refers to.
pub(crate) type State = Arc<dyn Any + Send + Sync>;

/// The host's functions of a session.
#[derive(Default)]
pub(crate) struct HostFunctions {
    /// By name, with their addresses: the same code may be there for functions of several types.
    types: HostTypes,
    states: Mutex<Vec<State>>,
    /// States that modules which are about to be read refer to, by their files, and whether such
    /// a module was read.
    coming: Mutex<HashMap<Arc<str>, (State, bool)>>,
    /// Producers of functions whose placeholder is their body, or can become it again.
    lazy: Mutex<HashMap<FunctionId, Vec<Arc<dyn Lazy>>>>,
}

impl HostFunctions {
    pub(super) fn types(&self) -> &HostTypes {
        &self.types
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
}

impl Dylib {
    /// Gives a name to a function or closure of the host. Its type is compared with the
    /// declarations of modules that call it.
    ///
    /// A function, and a closure that captures nothing, is called directly. Others are called with
    /// their state, which is dropped when the function was removed and no code can call it any more, or
    /// with the session. Functions that return `Result` can end the
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
                // Before the name is found: a declaration is compared with it from then on.
                direct
                    .iter()
                    .for_each(|(name, ty, address)| self.note(name, *address, ty));
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
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only to be told apart.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let core = self.jit.core();
        let names: Vec<&str> = functions.iter().map(|(name, ..)| *name).collect();
        let file: Arc<str> =
            format!("functions of the host: {} ({number})", names.join(", ")).into();
        let states = functions.iter().map(|(.., state)| Arc::clone(state));
        let parting = Parting {
            states: states.collect(),
            hands: Arc::downgrade(&core.hands),
        };
        {
            let _pass = gate::enter();
            core.host.announce(&file, Arc::new(parting));
        }
        let added = match under {
            None => self.add_ir(&file, ir),
            Some(tracker) => tracker.add_ir(&file, ir),
        };
        {
            let _pass = gate::enter();
            core.host.came(&file, added.is_ok());
        }
        added?;
        for (name, ty, _) in &functions {
            let address = self.lookup(name)?;
            self.note(name, address, ty);
        }
        Ok(())
    }

    fn note(&self, name: &str, address: u64, ty: &FunctionType) {
        let typed = Typed {
            dylib: self.dylib.clone(),
            address,
            ty: ty.clone(),
        };
        let core = self.jit.core();
        let _pass = gate::enter();
        core.host.types().note(name, typed, &core.names);
    }
}

impl Tracker {
    /// Like [`Dylib::define_fn`], under this tracker: the name goes when it is removed. What the
    /// function needs is dropped once no code can call it any more.
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
