//! What a dylib can be told of symbols, beside modules that are added to it: units, aliases,
//! generators, addresses, link orders.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use uruk_session::Alias;

use uruk_session::{ReexportGenerator, SessionError};

use crate::api::dylib::Dylib;
use crate::api::error::{Error, Missing};
use crate::api::generator::{Adapter, Generator, GeneratorId, GeneratorRequest};
use crate::api::jit::Jit;
use crate::api::lookup::{SymbolState, Visibility};
use crate::api::tracker::{Tracked, Tracker};
use crate::api::unit::{Flags, Symbol, Unit};
use crate::fork::gate;
use crate::guest::exit;
use crate::guest::process::Library;
use crate::replace::scrubbed;

impl Jit {
    /// The symbol of a name: names are compared by it. Takes no lock if the name is known.
    pub fn intern(&self, name: &str) -> Symbol {
        self.core().names.session().intern(name)
    }

    /// The name of a symbol.
    pub fn name_of(&self, symbol: Symbol) -> &str {
        self.core().names.session().name(symbol)
    }

    /// The dylib that stands for the process: what the libraries that were allowed
    /// ([`Jit::add_library`]) export. It is last in the link order of each dylib of
    /// [`Jit::create_dylib`]; where it stands is for the embedder to say.
    pub fn process(&self) -> Dylib {
        self.dylib_of(self.core().names.host())
    }

    /// A new dylib that searches nothing but itself, not the process either.
    ///
    /// # Errors
    /// The name is taken.
    pub fn create_bare_dylib(&self, name: &str) -> Result<Dylib, Error> {
        let _pass = gate::enter();
        let dylib = self.core().names.create_bare_dylib(name)?;
        Ok(self.dylib_of(&dylib))
    }

    /// The dylib of that name.
    pub fn dylib(&self, name: &str) -> Option<Dylib> {
        let _pass = gate::enter();
        let dylib = self.core().names.session().dylib(name)?;
        Some(self.dylib_of(&dylib))
    }

    /// The handle of the library to a dylib of the session.
    pub(crate) fn dylib_of(&self, dylib: &uruk_session::Dylib) -> Dylib {
        Dylib {
            dylib: dylib.clone(),
            jit: self.clone(),
        }
    }
}

impl fmt::Debug for Dylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dylib.fmt(f)
    }
}

/// Whether both are handles of one session.
impl PartialEq for Jit {
    fn eq(&self, other: &Jit) -> bool {
        Arc::ptr_eq(self.core(), other.core())
    }
}

impl Eq for Jit {}

impl PartialEq for Dylib {
    /// Whether both are handles of one dylib.
    fn eq(&self, other: &Dylib) -> bool {
        self.dylib == other.dylib
    }
}

impl Eq for Dylib {}

impl Tracker {
    /// [`Dylib::define`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn define(&self, unit: impl Unit) -> Result<(), Error> {
        let interface = unit.interface();
        let _pass = gate::enter();
        let jit = self.jit.downgrade();
        let core = self.jit.core();
        let tracker = &*self.tracker;
        let place = (&tracker.dylib(), Some(tracker));
        core.define_unit(jit, place, Box::new(unit), interface)
    }
}

impl Dylib {
    /// Defines what `unit` promises: all of it, or nothing.
    ///
    /// A strong definition takes the place of a weak one that nobody searched for; a weak one
    /// yields to what is there, and the unit is told
    /// ([`Unit::discard`]).
    ///
    /// # Errors
    /// `Duplicate` if a strong symbol is defined already, or the dylib was removed.
    pub fn define(&self, unit: impl Unit) -> Result<(), Error> {
        let interface = unit.interface();
        let _pass = gate::enter();
        let jit = self.jit.downgrade();
        let core = self.jit.core();
        core.define_unit(jit, (&self.dylib, None), Box::new(unit), interface)
    }

    /// Defines symbols at addresses of the host, or with other fixed values.
    ///
    /// # Safety
    /// As [`Dylib::define_address`], of each.
    ///
    /// # Errors
    /// As [`Dylib::define`].
    pub unsafe fn define_addresses(
        &self,
        symbols: impl IntoIterator<Item = (Symbol, u64, Flags)>,
    ) -> Result<(), Error> {
        let symbols = uruk_session::AbsoluteSymbols::new(symbols);
        let define = || self.dylib.define(symbols);
        self.jit.core().change_names(define)
    }

    /// Defines other names for symbols of this dylib. Only what is asked for is materialized.
    ///
    /// An alias of a function means the function's stub: it follows replacements, and
    /// definitions that come after a removal.
    ///
    /// # Errors
    /// As [`Dylib::define`]; a lookup in a circle of aliases ends in `AliasCycle`.
    pub fn alias(&self, aliases: impl IntoIterator<Item = Alias>) -> Result<(), Error> {
        self.reexport(self, Visibility::All, aliases)
    }

    /// Defines names for symbols of `source`, as [`Dylib::alias`] does for its own.
    ///
    /// # Errors
    /// As there, and that `source` is of another session.
    pub fn reexport(
        &self,
        source: &Dylib,
        seen: Visibility,
        aliases: impl IntoIterator<Item = Alias>,
    ) -> Result<(), Error> {
        // It may be code of the embedder that yields them.
        let aliases: Vec<Alias> = aliases.into_iter().collect();
        let define = || self.dylib.reexport(&source.dylib, seen, aliases);
        self.jit.core().change_aliases(define)
    }

    /// Re-exports whatever `source` has, under the same names, where `allowed` says so; each when
    /// it is asked for.
    ///
    /// # Errors
    /// A dylib was removed, or is of another session.
    pub fn reexport_all(
        &self,
        source: &Dylib,
        seen: Visibility,
        allowed: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<GeneratorId, Error> {
        if !Arc::ptr_eq(self.jit.core(), source.jit.core()) {
            let dylib = source.name().into();
            return Err(SessionError::ForeignDylib { dylib }.into());
        }
        let jit = self.jit.downgrade();
        let allowed = move |symbol| {
            let Some(jit) = jit.upgrade() else {
                return false;
            };
            gate::outside(|| allowed(jit.name_of(symbol)))
        };
        let generator = ReexportGenerator::new(&source.dylib, seen, allowed);
        let add = || self.dylib.add_generator(generator);
        self.jit.core().change_aliases(add)
    }

    /// Has what this dylib lacks be made by `generator`, after those that were added before.
    ///
    /// # Errors
    /// The dylib was removed.
    pub fn add_generator(&self, generator: impl Generator) -> Result<GeneratorId, Error> {
        let adapter = Adapter {
            jit: self.jit.downgrade(),
            generator: Arc::new(generator),
        };
        let add = || self.dylib.add_generator(adapter);
        self.jit.core().change_names(add)
    }

    /// Removes a generator. Lookups that are inside it or stand in its line fail. False if it
    /// was not there.
    pub fn remove_generator(&self, id: GeneratorId) -> bool {
        let _pass = gate::enter();
        self.dylib.remove_generator(id)
    }

    /// Has this dylib find what a shared library exports, if `allowed` says so; the library is
    /// loaded, and stays. For all dylibs that search the process: [`Jit::add_library`].
    ///
    /// # Errors
    /// The dynamic loader's message, or that the dylib was removed.
    pub fn add_library(
        &self,
        path: &Path,
        allowed: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<GeneratorId, Error> {
        let library = Library::open(path)?;
        self.find_in(library, allowed)
    }

    /// Has this dylib find what the process exports, as `dlsym` does, and what the host's
    /// executable defines without exporting it, if `allowed` says so.
    ///
    /// # Errors
    /// The executable cannot be read, or the dylib was removed.
    pub fn add_process_symbols(
        &self,
        allowed: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<GeneratorId, Error> {
        let library = Library::process()?;
        self.find_in(library, allowed)
    }

    fn find_in(
        &self,
        library: Library,
        allowed: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<GeneratorId, Error> {
        self.add_generator(move |ask: &GeneratorRequest| {
            let jit = ask.jit();
            let missing = ask.missing().iter();
            let found: Vec<_> = missing
                .filter(|(symbol, _)| allowed(jit.name_of(*symbol)))
                .filter_map(|(symbol, _)| Some((*symbol, library.find(jit.name_of(*symbol))?)))
                .map(|(symbol, address)| (symbol, address, Flags::EXPORTED))
                .collect();
            if found.is_empty() {
                return Ok(());
            }
            // SAFETY: they are of a library that stays loaded.
            unsafe { ask.dylib().define_addresses(found) }
        })
    }

    /// Runs the constructors of what was added to this dylib and has not been initialized, and
    /// before that of what it links against, as loading a library does: dylibs depth first, inputs
    /// in the order in which they were added, constructors by priority.
    ///
    /// # Safety
    /// As calling any function of the modules.
    ///
    /// # Errors
    /// [`Error::Trap`]: what went wrong in a constructor, as in a guarded call
    /// ([`Func::call_guarded`](crate::Func)), an error of a function of the host among it; a panic of
    /// such a function. Constructors behind it in its input do not run, those of later inputs do at
    /// the next call.
    pub unsafe fn initialize(&self) -> Result<(), Error> {
        let core = self.jit.core();
        let order = {
            let _pass = gate::enter();
            self.dylib.depth_first_order()
        };
        for dylib in order.iter().rev() {
            let images: Vec<u64> = {
                let _pass = gate::enter();
                core.link_waiting(Some(dylib));
                let lives = core.names.lives.of(dylib);
                lives.iter().map(|life| life.root().number()).collect()
            };
            // SAFETY: by the caller's promise.
            unsafe { core.run_due(&|life| images.contains(&life))? };
        }
        Ok(())
    }

    /// Runs what is to be run at the end of this dylib, as closing a library does: destructors of
    /// the calling thread's variables, destructors of what was initialized, handlers of `atexit`,
    /// latest first; of this dylib only. It can be initialized again, which runs its constructors
    /// again; variables keep what they have.
    ///
    /// # Safety
    /// As calling any function of the modules.
    pub unsafe fn deinitialize(&self) {
        let core = self.jit.core();
        let images = {
            let _pass = gate::enter();
            core.names.lives.of(&self.dylib)
        };
        exit::run_ends(core, &images);
        let _pass = gate::enter();
        let ended: Vec<u64> = images.iter().map(|life| life.root().number()).collect();
        core.schedule().again(|life| ended.contains(&life));
    }

    /// Whether what is added may need symbols that nobody defines yet. By default that is an error
    /// of the `add` ([`Error::MissingSymbols`]).
    ///
    /// If so, functions that need them fail when they are called (as
    /// [`JitBuilder::on_failure`](crate::JitBuilder::on_failure) says), until they are defined,
    /// wherever that is; other functions can be called at once. If a module's data refers to what
    /// is missing, all its data waits, and so do its constructors: it is found once everything is
    /// defined, and until then a lookup of it says what is not. Modules can so be added in any
    /// order, and refer to each other. What is waited for: [`Dylib::unresolved`].
    pub fn allow_missing(&self, allowed: bool) {
        let _pass = gate::enter();
        self.jit.core().waiting.allow(&self.dylib, allowed);
    }

    /// The symbols that what was added here needs and nobody defines, and who needs them.
    ///
    /// # Errors
    /// What a generator answered.
    pub fn unresolved(&self) -> Result<Vec<Missing>, Error> {
        let _pass = gate::enter();
        self.jit.core().unresolved(&self.dylib)
    }

    /// Removes symbols that nobody is at work on: all of them, or none. Calls of units' functions
    /// go to the failure handler, until they are defined again.
    ///
    /// # Safety
    /// As [`Tracker::remove`], for units' functions. Data of modules stays where it is, and so do
    /// their functions as long as anything may call them: code or data that refers to them, an
    /// address that was given away, a handle.
    ///
    /// # Errors
    /// `NotFound` or `InFlight` with all that are so.
    pub unsafe fn undefine(&self, symbols: &[Symbol]) -> Result<(), Error> {
        let _pass = gate::enter();
        Ok(scrubbed(|| self.jit.core().undefine(&self.dylib, symbols))?)
    }

    /// How far a symbol of this dylib has come; `None` if it is not defined here.
    pub fn state_of(&self, symbol: Symbol) -> Option<SymbolState> {
        let _pass = gate::enter();
        let session = self.jit.core().names.session();
        session.symbol_state(&self.dylib, symbol)
    }

    /// Whether it was removed.
    pub fn is_defunct(&self) -> bool {
        let _pass = gate::enter();
        self.dylib.is_defunct()
    }

    /// Where lookups that start here go on, after this dylib itself.
    pub fn link_order(&self) -> Vec<(Dylib, Visibility)> {
        let _pass = gate::enter();
        let order = self.dylib.link_order().into_iter();
        order
            .map(|(dylib, seen)| (self.jit.dylib_of(&dylib), seen))
            .collect()
    }

    /// Sets where lookups that start here go on; the process is searched where
    /// [`Jit::process`] stands.
    ///
    /// # Errors
    /// A dylib was removed, or is of another session. Nothing is changed then.
    pub fn set_link_order(&self, order: &[(Dylib, Visibility)]) -> Result<(), Error> {
        let set = || {
            let order = order.iter();
            let order: Vec<_> = order
                .map(|(dylib, seen)| (dylib.dylib.clone(), *seen))
                .collect();
            self.dylib.set_link_order(&order)
        };
        self.jit.core().change_names(set)
    }

    /// Puts `new` where `old` was in the link order; nothing if it was not there.
    ///
    /// # Errors
    /// As [`Dylib::set_link_order`].
    pub fn replace_in_link_order(
        &self,
        old: &Dylib,
        new: &Dylib,
        seen: Visibility,
    ) -> Result<(), Error> {
        let (old, new) = (&old.dylib, &new.dylib);
        let replace = || self.dylib.replace_in_link_order(old, new, seen);
        self.jit.core().change_names(replace)
    }

    /// Takes a dylib out of the link order.
    ///
    /// # Errors
    /// As [`Dylib::set_link_order`].
    pub fn remove_from_link_order(&self, dylib: &Dylib) -> Result<(), Error> {
        let _pass = gate::enter();
        Ok(self.dylib.remove_from_link_order(&dylib.dylib)?)
    }

    /// This dylib and all that it links against, each once, depth first.
    pub fn depth_first_order(&self) -> Vec<Dylib> {
        let _pass = gate::enter();
        let order = self.dylib.depth_first_order().into_iter();
        order.map(|dylib| self.jit.dylib_of(&dylib)).collect()
    }

    /// The init symbols of units defined so far, oldest first. To look one up runs what it
    /// stands for.
    pub fn init_symbols(&self) -> Vec<Symbol> {
        let _pass = gate::enter();
        self.dylib.init_symbols()
    }
}

impl Dylib {
    /// Defines something under the default tracker; anew, if another thread cleared the dylib
    /// meanwhile, and the tracker is another one.
    pub(crate) fn in_default_tracker<R>(
        &self,
        mut define: impl FnMut(&uruk_session::Tracker) -> Result<R, Error>,
    ) -> Result<R, Error> {
        loop {
            let tracker = {
                let _pass = gate::enter();
                Tracked::from(self.dylib.default_tracker()?)
            };
            match define(&tracker) {
                Err(cause) if cause.is_defunct_tracker() && is_cleared(&self.dylib, &tracker) => {}
                done => return done,
            }
        }
    }
}

/// Whether the tracker has gone, and its dylib has not.
fn is_cleared(dylib: &uruk_session::Dylib, tracker: &uruk_session::Tracker) -> bool {
    let _pass = gate::enter();
    tracker.is_defunct() && !dylib.is_defunct()
}
