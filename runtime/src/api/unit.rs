//! Units: definitions that an embedder makes itself.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use uruk_session::{DependenceGroup, Flags, Interface, Resource, Symbol};

use uruk_session::SessionError;

use crate::api::dylib::Dylib;
use crate::api::improve::Reoptimizer;
use crate::api::jit::{Jit, WeakJit};
use crate::api::tracker::Tracker;
use crate::error::Error;
use crate::fork::gate;
use crate::units::{BodyNames, LazyObject};

/// An embedder's source of definitions that are made on demand: a language's own functions, an
/// object, bytes of an assembler.
///
/// Symbols with [`Flags::CALLABLE`] in the interface get a stub: the name is ready at once, and the
/// first call materializes the unit. Other symbols are materialized when they are looked up, as by
/// a module that mentions them. (A function that must be compiled when it is looked up is not
/// flagged callable.)
///
/// Methods run without any lock, on the thread that asks; if a first call asks, on a library thread
/// with all signals blocked. They may use the session, and call its functions. A panic is reported,
/// and fails the symbols that the unit was responsible for.
///
/// ```
/// use uruk::{Flags, Interface, Jit, Responsibility, Symbol, Unit};
///
/// /// A table of squares, made when it is asked for.
/// struct Squares(Symbol);
///
/// impl Unit for Squares {
///     fn name(&self) -> &str { "squares" }
///     fn interface(&self) -> Interface {
///         [(self.0, Flags::EXPORTED)].into_iter().collect()
///     }
///     fn materialize(self: Box<Self>, responsibility: Responsibility) {
///         let squares: &'static [u64] = Vec::from_iter((0..10).map(|n| n * n)).leak();
///         let address = squares.as_ptr() as u64;
///         // Fails if it was removed meanwhile; then no lookup waits.
///         let _ = responsibility.resolve(&[(self.0, address)]);
///         let _ = responsibility.emit(&[]);
///     }
/// }
///
/// let jit = Jit::new()?;
/// let symbol = jit.intern("squares");
/// jit.main().define(Squares(symbol))?;
/// jit.add_ir("m", "@squares = external global [10 x i64]
///   define i64 @square(i64 %n) {
///     %p = getelementptr [10 x i64], ptr @squares, i64 0, i64 %n
///     %v = load i64, ptr %p
///     ret i64 %v
///   }")?;
/// // SAFETY: `square` reads the table above.
/// let square = unsafe { jit.function::<extern "C" fn(i64) -> i64>("square")? };
/// assert_eq!(square.call(7), 49);
/// # Ok::<(), uruk::Error>(())
/// ```
pub trait Unit: Send + 'static {
    /// The unit's name, for messages.
    fn name(&self) -> &str;

    /// The symbols; called once, when the unit is defined.
    fn interface(&self) -> Interface;

    /// Defines the symbols of `responsibility`, now or, by keeping it, later.
    fn materialize(self: Box<Self>, responsibility: Responsibility);

    /// Notes that another definition of `symbol` was chosen. Called before `materialize`, or before
    /// the unit is dropped because none of its symbols is left.
    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let _ = (dylib, symbol);
    }

    /// The reoptimizer that makes better code of the unit's hot functions that have stubs; by
    /// default none. Called once, when the unit is defined; not for units that parts are given back
    /// to.
    ///
    /// Code that [`Responsibility::link`] links for such a unit is freed when better code has
    /// replaced it, unless an address of its private definitions can be kept. The rules of
    /// [`ReoptimizeRequest::link`](crate::ReoptimizeRequest::link) then hold there, too.
    fn improver(&self) -> Option<Arc<dyn Reoptimizer>> {
        None
    }
}

/// A unit as the session keeps it, to which parts of a responsibility are given back.
pub(crate) struct Given {
    pub(crate) jit: WeakJit,
    pub(crate) names: Arc<BodyNames>,
    pub(crate) unit: Box<dyn Unit>,
    pub(crate) interface: Interface,
}

/// The obligation of a unit to define the requested symbols: it resolves the symbols' addresses,
/// then emits them, or fails. Parts can be passed on. Dropping it early fails its symbols; nothing
/// leaks. After its tracker was removed each step returns that error, and any way to end it is
/// fine.
pub struct Responsibility {
    /// `None` once it has ended.
    inner: Option<uruk_session::Responsibility>,
    names: Arc<BodyNames>,
    /// The symbols by their own names, where the session uses other names.
    symbols: Option<Vec<(Symbol, Flags)>>,
    jit: Jit,
}

impl fmt::Debug for Responsibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responsibility")
            .field("symbols", &self.inner)
            .finish_non_exhaustive()
    }
}

impl Drop for Responsibility {
    fn drop(&mut self) {
        // A pass costs two system calls, and most responsibilities have ended by now.
        if self.inner.is_some() {
            let _pass = gate::enter();
            self.inner = None;
        }
    }
}

impl Responsibility {
    pub(crate) fn new(
        jit: Jit,
        inner: uruk_session::Responsibility,
        names: Arc<BodyNames>,
    ) -> Responsibility {
        let own = |(symbol, flags): &(Symbol, Flags)| (names.own(*symbol), *flags);
        let symbols = (!names.is_empty()).then(|| inner.symbols().iter().map(own).collect());
        Responsibility {
            symbols,
            inner: Some(inner),
            names,
            jit,
        }
    }

    pub(crate) fn inner(&self) -> &uruk_session::Responsibility {
        self.inner.as_ref().expect("only the end takes it out")
    }

    pub(crate) fn names(&self) -> &Arc<BodyNames> {
        &self.names
    }

    fn inner_mut(&mut self) -> &mut uruk_session::Responsibility {
        self.inner.as_mut().expect("only the end takes it out")
    }

    /// The session.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// The dylib that the symbols are in.
    pub fn dylib(&self) -> Dylib {
        self.jit.dylib_of(&self.inner().dylib())
    }

    /// The tracker that the symbols are under now.
    ///
    /// # Errors
    /// `TrackerDefunct`.
    pub fn tracker(&self) -> Result<Tracker, SessionError> {
        let _pass = gate::enter();
        let tracker = self.jit.session().tracker_of(self)?;
        Ok(Tracker::of(&self.jit, tracker))
    }

    /// The symbols, without those that were passed on.
    pub fn symbols(&self) -> &[(Symbol, Flags)] {
        match &self.symbols {
            Some(symbols) => symbols,
            None => self.inner().symbols(),
        }
    }

    /// Whether `symbol` is one of them.
    pub fn covers(&self, symbol: Symbol) -> bool {
        self.symbols().iter().any(|(own, _)| *own == symbol)
    }

    /// The symbol that stands for the initializers, if it is one of them.
    pub fn init_symbol(&self) -> Option<Symbol> {
        self.inner().init_symbol()
    }

    /// The symbols that a lookup or call waits for now. The others may be given back
    /// ([`Responsibility::replace`]).
    pub fn requested(&self) -> Vec<Symbol> {
        let _pass = gate::enter();
        let requested = self.inner().requested().into_iter();
        requested.map(|symbol| self.names.own(symbol)).collect()
    }

    /// Gives symbols their addresses; lookups that require no more are answered. Addresses of
    /// side-effects-only symbols are ignored.
    ///
    /// # Errors
    /// `NotResponsible`, `TrackerDefunct`; nothing is changed then.
    pub fn resolve(&self, addresses: &[(Symbol, u64)]) -> Result<(), SessionError> {
        let addresses = self.addresses(addresses);
        let _pass = gate::enter();
        self.inner().resolve(&addresses)
    }

    /// All symbols are in memory. Each becomes ready as soon as the dependences of its groups are;
    /// one without a group at once.
    ///
    /// # Errors
    /// `Unresolved` if one has no address, `NotResponsible` if a group names another's,
    /// `DependenceFailed` if a dependence failed or is gone, `ForeignDylib` if one is of another
    /// session: the symbols failed then. `TrackerDefunct`.
    pub fn emit(mut self, groups: &[DependenceGroup]) -> Result<(), SessionError> {
        let groups = self.groups(groups);
        let _pass = gate::enter();
        match self.inner.take() {
            Some(inner) => inner.emit(&groups),
            None => Ok(()),
        }
    }

    /// Does [`Responsibility::resolve`] and [`Responsibility::emit`] in one step, at half the cost:
    /// the intermediate state, resolved and not emitted, is never visible.
    ///
    /// ```
    /// use uruk::{Flags, Interface, Jit, Responsibility, Symbol, Unit};
    ///
    /// struct Zero(Symbol);
    ///
    /// impl Unit for Zero {
    ///     fn name(&self) -> &str { "zero" }
    ///     fn interface(&self) -> Interface {
    ///         [(self.0, Flags::EXPORTED)].into_iter().collect()
    ///     }
    ///     fn materialize(self: Box<Self>, responsibility: Responsibility) {
    ///         static ZERO: u64 = 0;
    ///         // Fails if it was removed meanwhile; then no lookup waits.
    ///         let _ = responsibility.publish(&[(self.0, &raw const ZERO as u64)], &[]);
    ///     }
    /// }
    ///
    /// let jit = Jit::new()?;
    /// jit.main().define(Zero(jit.intern("zero")))?;
    /// assert!(jit.lookup("zero").is_ok());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of both; the symbols failed then.
    pub fn publish(
        mut self,
        addresses: &[(Symbol, u64)],
        groups: &[DependenceGroup],
    ) -> Result<(), SessionError> {
        let (addresses, groups) = (self.addresses(addresses), self.groups(groups));
        let _pass = gate::enter();
        match self.inner.take() {
            Some(inner) => inner.publish(&addresses, &groups),
            None => Ok(()),
        }
    }

    /// Translates the symbols to the session's names.
    fn addresses<'a>(&self, addresses: &'a [(Symbol, u64)]) -> Cow<'a, [(Symbol, u64)]> {
        if self.names.is_empty() {
            return Cow::Borrowed(addresses);
        }
        let body = |(symbol, address): &(Symbol, u64)| (self.names.body(*symbol), *address);
        addresses.iter().map(body).collect()
    }

    /// Translates the symbols to the session's names.
    fn groups<'a>(&self, groups: &'a [DependenceGroup]) -> Cow<'a, [DependenceGroup]> {
        if self.names.is_empty() {
            return Cow::Borrowed(groups);
        }
        let named = |group: &DependenceGroup| DependenceGroup {
            symbols: group.symbols.iter().map(|s| self.names.body(*s)).collect(),
            dependences: group.dependences.clone(),
        };
        groups.iter().map(named).collect()
    }

    /// Adds symbols found during materialization; they get no stubs. Weak ones that are defined
    /// elsewhere are skipped; returns those that were added.
    ///
    /// # Errors
    /// `Duplicate`, `TrackerDefunct`; nothing is changed then.
    pub fn claim(&mut self, symbols: &[(Symbol, Flags)]) -> Result<Vec<Symbol>, SessionError> {
        let _pass = gate::enter();
        let claimed = self.inner_mut().claim(symbols)?;
        let taken = symbols
            .iter()
            .filter(|(symbol, _)| claimed.contains(symbol));
        if let Some(own) = &mut self.symbols {
            own.extend(taken);
        }
        Ok(claimed)
    }

    fn without(&mut self, gone: &[Symbol]) {
        if let Some(own) = &mut self.symbols {
            own.retain(|(symbol, _)| !gone.contains(symbol));
        }
    }

    fn given(&self, unit: impl Unit) -> Given {
        let interface = unit.interface();
        Given {
            jit: self.jit.downgrade(),
            names: Arc::clone(&self.names),
            unit: Box::new(unit),
            interface,
        }
    }

    /// Gives symbols back to another unit, which is materialized when they are looked up: at once
    /// if a lookup waits for one already.
    ///
    /// # Errors
    /// `NotResponsible`, `TrackerDefunct`; the unit was dropped.
    pub fn replace(&mut self, unit: impl Unit) -> Result<(), SessionError> {
        let given = self.given(unit);
        let gone: Vec<Symbol> = given.interface.symbols.iter().map(|(s, _)| *s).collect();
        let unit = crate::units::adapted(given);
        let _pass = gate::enter();
        self.inner_mut().replace(unit)?;
        self.without(&gone);
        Ok(())
    }

    /// Splits some of the symbols off into a responsibility of their own.
    ///
    /// # Errors
    /// `NotResponsible`, `TrackerDefunct`; nothing is changed then.
    pub fn delegate(&mut self, symbols: &[Symbol]) -> Result<Responsibility, SessionError> {
        let _pass = gate::enter();
        let bodies: Vec<Symbol> = symbols.iter().map(|s| self.names.body(*s)).collect();
        let inner = self.inner_mut().delegate(&bodies)?;
        self.without(symbols);
        Ok(Responsibility::new(
            self.jit.clone(),
            inner,
            Arc::clone(&self.names),
        ))
    }

    /// Keeps a resource until the definitions are removed.
    ///
    /// # Errors
    /// `TrackerDefunct`; the resource was released.
    pub fn attach(&self, resource: impl Resource + 'static) -> Result<(), SessionError> {
        let _pass = gate::enter();
        let resource = Box::new(resource);
        let release = move || gate::outside(|| resource.release());
        self.inner().attach(Box::new(release))
    }

    /// Links an ELF object that defines the symbols, and ends the responsibility: by emitting, with
    /// the dependences that the object's relocations show, or by failing.
    ///
    /// Other definitions that the object exports are [claimed](Responsibility::claim). Its
    /// functions call each other, and themselves, through stubs where they have one, and so can be
    /// replaced. Its memory is the session's and is freed with the tracker, code when no thread can
    /// return into it. Constructors run at the next [`Jit::initialize`].
    ///
    /// If it refers to an undefined symbol, all waiting lookups fail. The object is linked by the
    /// next lookup, or first call, of one of the symbols that finds the reference defined.
    ///
    /// # Errors
    /// No object for this machine, a promised symbol that it does not define, a duplicate symbol,
    /// or the tracker was removed: it was failed with that. A missing symbol.
    pub fn link(self, name: &str, object: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        let dylib = self.dylib();
        let object = LazyObject::again(name, object.into(), self.symbols());
        match object.missing(&dylib) {
            Ok(missing) if missing.is_empty() => {
                let session = Arc::clone(self.jit.session());
                let _pass = gate::enter();
                session.link_for(self, name, object.into_bytes())
            }
            Ok(missing) => {
                let error = SessionError::not_found(&dylib.dylib, missing);
                self.fail_retryable(error.clone(), object)?;
                Err(error.into())
            }
            Err(error) => {
                self.fail(error.clone());
                Err(error)
            }
        }
    }

    /// Fails the symbols and their dependents. The error goes to all waiting lookups, or else to
    /// the reporter ([`JitBuilder::on_error`](crate::JitBuilder::on_error)).
    pub fn fail(mut self, error: impl Into<SessionError>) {
        let error = error.into();
        let _pass = gate::enter();
        if let Some(inner) = self.inner.take() {
            inner.fail(error);
        }
    }

    /// Fails the symbols for now, e.g. because an external is missing. All waiting lookups fail,
    /// and the next lookup of one of them, or of a dependent, materializes `unit`. Emitted code
    /// that depends on them keeps waiting instead of failing.
    ///
    /// # Errors
    /// `NotResponsible` if the unit defines other symbols; they have failed then.
    /// `TrackerDefunct`.
    pub fn fail_retryable(
        mut self,
        error: impl Into<SessionError>,
        unit: impl Unit,
    ) -> Result<(), SessionError> {
        let error = error.into();
        let given = self.given(unit);
        let unit = crate::units::adapted(given);
        let _pass = gate::enter();
        match self.inner.take() {
            Some(inner) => inner.fail_retryable(error, unit),
            None => Ok(()),
        }
    }
}

impl From<Error> for SessionError {
    /// Converts a session error back as it is, others as errors of a unit.
    fn from(error: Error) -> SessionError {
        match error {
            Error::Session(error) => error,
            error => SessionError::unit("unit", error),
        }
    }
}
