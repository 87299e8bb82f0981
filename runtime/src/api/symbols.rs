//! Other definitions of a dylib's symbols, beside modules: units, aliases, generators, addresses,
//! link orders.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use uruk_session::Alias;

use uruk_session::{ReexportGenerator, SessionError};

use crate::api::dylib::Dylib;
use crate::api::generator::{Generator, GeneratorAdapter, GeneratorId, GeneratorRequest};
use crate::api::jit::Jit;
use crate::api::lookup::{SymbolState, Visibility};
use crate::api::tracker::Tracker;
use crate::api::unit::{Flags, Symbol, Unit};
use crate::code::tracked::Tracked;
use crate::error::{Error, Missing};
use crate::exits;
use crate::fork::gate;
use crate::host::process::Library;
use crate::replace::quiet::scrubbed;
use crate::session::Session;

impl Jit {
    /// The interned symbol of a name, by which names are compared. Takes no lock if the name is
    /// known.
    pub fn intern(&self, name: &str) -> Symbol {
        self.session().names.session().intern(name)
    }

    /// The name of a symbol.
    pub fn name_of(&self, symbol: Symbol) -> &str {
        self.session().names.session().name(symbol)
    }

    /// The dylib that stands for the process: exports of the allowed libraries
    /// ([`Jit::add_library`]). It is last in the link order of each dylib of [`Jit::create_dylib`];
    /// the embedder may move it.
    pub fn process(&self) -> Dylib {
        self.dylib_of(self.session().names.host())
    }

    /// A new dylib that searches only itself, not even the process.
    ///
    /// # Errors
    /// The name is taken.
    pub fn create_bare_dylib(&self, name: &str) -> Result<Dylib, Error> {
        let _pass = gate::enter();
        let dylib = self.session().names.create_bare_dylib(name)?;
        Ok(self.dylib_of(&dylib))
    }

    /// The dylib of that name.
    pub fn dylib(&self, name: &str) -> Option<Dylib> {
        let _pass = gate::enter();
        let dylib = self.session().names.session().dylib(name)?;
        Some(self.dylib_of(&dylib))
    }

    /// The library's handle of a dylib of the session.
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
        Arc::ptr_eq(self.session(), other.session())
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
    /// Like [`Dylib::define`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::define`], and that the tracker was removed.
    pub fn define(&self, unit: impl Unit) -> Result<(), Error> {
        let interface = unit.interface();
        let _pass = gate::enter();
        let jit = self.jit.downgrade();
        let session = self.jit.session();
        let tracker = &*self.tracker;
        let place = (&tracker.dylib(), Some(tracker));
        session.define_unit(jit, place, Box::new(unit), interface)
    }
}

impl Dylib {
    /// Defines the symbols of `unit`'s interface: all of them, or none.
    ///
    /// A strong definition replaces a weak one that was never searched for; a weak one yields to an
    /// existing one, and the unit is told ([`Unit::discard`]).
    ///
    /// # Errors
    /// `Duplicate` if a strong symbol is defined already, or the dylib was removed.
    pub fn define(&self, unit: impl Unit) -> Result<(), Error> {
        let interface = unit.interface();
        let _pass = gate::enter();
        let jit = self.jit.downgrade();
        let session = self.jit.session();
        session.define_unit(jit, (&self.dylib, None), Box::new(unit), interface)
    }

    /// Defines symbols at addresses of the host, or with other fixed values.
    ///
    /// # Safety
    /// As [`Dylib::define_address`], for each.
    ///
    /// # Errors
    /// As [`Dylib::define`].
    pub unsafe fn define_addresses(
        &self,
        symbols: impl IntoIterator<Item = (Symbol, u64, Flags)>,
    ) -> Result<(), Error> {
        let symbols = uruk_session::AbsoluteSymbols::new(symbols);
        let define = || self.dylib.define(symbols);
        self.jit.session().change_names(define)
    }

    /// Defines other names for symbols of this dylib. Only requested aliases are materialized.
    ///
    /// An alias of a function is an alias of the function's stub: it follows replacements, and
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
    /// Those of [`Dylib::alias`], and that `source` is of another session.
    pub fn reexport(
        &self,
        source: &Dylib,
        seen: Visibility,
        aliases: impl IntoIterator<Item = Alias>,
    ) -> Result<(), Error> {
        // The iterator may be code of the embedder.
        let aliases: Vec<Alias> = aliases.into_iter().collect();
        let define = || self.dylib.reexport(&source.dylib, seen, aliases);
        self.jit.session().change_aliases(define)
    }

    /// Re-exports the symbols of `source` that `allowed` accepts, under the same names; each when
    /// it is looked up.
    ///
    /// # Errors
    /// A dylib was removed, or is of another session.
    pub fn reexport_all(
        &self,
        source: &Dylib,
        seen: Visibility,
        allowed: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<GeneratorId, Error> {
        if !Arc::ptr_eq(self.jit.session(), source.jit.session()) {
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
        self.jit.session().change_aliases(add)
    }

    /// Adds a generator for symbols that this dylib lacks, after those that were added before.
    ///
    /// # Errors
    /// The dylib was removed.
    pub fn add_generator(&self, generator: impl Generator) -> Result<GeneratorId, Error> {
        let adapter = GeneratorAdapter {
            jit: self.jit.downgrade(),
            generator: Arc::new(generator),
        };
        let add = || self.dylib.add_generator(adapter);
        self.jit.session().change_names(add)
    }

    /// Removes a generator. Lookups that are inside it or in its queue fail. False if it was not
    /// found.
    pub fn remove_generator(&self, id: GeneratorId) -> bool {
        let _pass = gate::enter();
        self.dylib.remove_generator(id)
    }

    /// Makes the exports of a shared library visible in this dylib, if `allowed` accepts them; the
    /// library is loaded, and stays. For all dylibs that search the process: [`Jit::add_library`].
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

    /// Makes the exports of the process visible in this dylib, as `dlsym` does, and the unexported
    /// definitions of the host's executable, if `allowed` accepts them.
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
            // SAFETY: the addresses are of a library that stays loaded.
            unsafe { ask.dylib().define_addresses(found) }
        })
    }

    /// Runs the constructors of inputs of this dylib that are not initialized, and before that
    /// those of the dylibs it links against, as loading a library does. The order is dylibs depth
    /// first, inputs in the order in which they were added, constructors by priority.
    ///
    /// # Safety
    /// As calling any function of the modules.
    ///
    /// # Errors
    /// [`Error::Trap`]: the trap of a constructor, as in a guarded call
    /// ([`Func::call_guarded`](crate::Func)), errors and panics of functions of the host included.
    /// Later constructors of its input do not run, those of later inputs do at the next call.
    pub unsafe fn initialize(&self) -> Result<(), Error> {
        let session = self.jit.session();
        let order = {
            let _pass = gate::enter();
            self.dylib.depth_first_order()
        };
        for dylib in order.iter().rev() {
            let images: Vec<u64> = {
                let _pass = gate::enter();
                session.link_waiting(Some(dylib));
                let lives = session.names.lives.of(dylib);
                lives.iter().map(|life| life.root().number()).collect()
            };
            // SAFETY: by the caller's promise.
            unsafe { session.run_due(&|life| images.contains(&life))? };
        }
        Ok(())
    }

    /// Runs the end of this dylib, as closing a library does: destructors of the calling thread's
    /// variables, destructors of initialized inputs, handlers of `atexit`, latest first; of this
    /// dylib only. It can be initialized again, which runs its constructors again; variables keep
    /// their values.
    ///
    /// # Safety
    /// As calling any function of the modules.
    pub unsafe fn deinitialize(&self) {
        let session = self.jit.session();
        let images = {
            let _pass = gate::enter();
            session.names.lives.of(&self.dylib)
        };
        exits::run_ends(session.loader(), &images);
        let _pass = gate::enter();
        let ended: Vec<u64> = images.iter().map(|life| life.root().number()).collect();
        session.schedule().again(|life| ended.contains(&life));
    }

    /// Sets whether added modules may need symbols without a definition. By default that is an
    /// error of the `add` ([`Error::MissingSymbols`]).
    ///
    /// If so, calls of functions that need them fail (as
    /// [`JitBuilder::on_failure`](crate::JitBuilder::on_failure) says), until any dylib in reach
    /// defines them; other functions can be called at once. If a module's data refers to a missing
    /// symbol, all its data and its constructors wait for the definitions; until then a lookup of
    /// the data names the missing ones. So modules can be added in any order, and refer to each
    /// other. [`Dylib::unresolved`] lists the missing symbols.
    pub fn allow_missing(&self, allowed: bool) {
        let _pass = gate::enter();
        self.jit.session().waiting.allow(&self.dylib, allowed);
    }

    /// The symbols that code of this dylib needs and that have no definition, with their users.
    ///
    /// # Errors
    /// The error of a generator.
    pub fn unresolved(&self) -> Result<Vec<Missing>, Error> {
        let _pass = gate::enter();
        self.jit.session().unresolved(&self.dylib)
    }

    /// Removes symbols that are not being materialized: all of them, or none. Calls of units'
    /// functions go to the failure handler, until they are defined again.
    ///
    /// # Safety
    /// As [`Tracker::remove`], for units' functions. Data of modules stays where it is, and so do
    /// their functions as long as anything may call them: code or data that refers to them, an
    /// address that was given out, a handle.
    ///
    /// # Errors
    /// `NotFound` or `InFlight` with all such symbols.
    pub unsafe fn undefine(&self, symbols: &[Symbol]) -> Result<(), Error> {
        let _pass = gate::enter();
        Ok(scrubbed(|| {
            self.jit.session().undefine(&self.dylib, symbols)
        })?)
    }

    /// The state of a symbol of this dylib; `None` if it is not defined here.
    pub fn state_of(&self, symbol: Symbol) -> Option<SymbolState> {
        let _pass = gate::enter();
        let session = self.jit.session().names.session();
        session.symbol_state(&self.dylib, symbol)
    }

    /// Whether the dylib was removed.
    pub fn is_defunct(&self) -> bool {
        let _pass = gate::enter();
        self.dylib.is_defunct()
    }

    /// The link order: the dylibs searched after this one.
    pub fn link_order(&self) -> Vec<(Dylib, Visibility)> {
        let _pass = gate::enter();
        let order = self.dylib.link_order().into_iter();
        order
            .map(|(dylib, seen)| (self.jit.dylib_of(&dylib), seen))
            .collect()
    }

    /// Sets the link order; the process is searched where [`Jit::process`] stands.
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
        self.jit.session().change_names(set)
    }

    /// Puts `new` in the place of `old` in the link order; does nothing if `old` is not in it.
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
        self.jit.session().change_names(replace)
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

    /// The init symbols of units defined so far, oldest first. Looking one up runs its
    /// initializers.
    pub fn init_symbols(&self) -> Vec<Symbol> {
        let _pass = gate::enter();
        self.dylib.init_symbols()
    }
}

impl Dylib {
    /// Runs `define` under the default tracker; retries if another thread cleared the dylib
    /// meanwhile, which replaces the tracker.
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

/// Whether the tracker was removed, and its dylib was not.
fn is_cleared(dylib: &uruk_session::Dylib, tracker: &uruk_session::Tracker) -> bool {
    let _pass = gate::enter();
    tracker.is_defunct() && !dylib.is_defunct()
}

/// Adds a library of the process in which names are searched. Its constructors may call code of the
/// session, so it is opened before any lock is taken.
///
/// # Errors
/// [`Error::Library`].
pub(super) fn add_to_process(session: &Session, name: &str) -> Result<(), Error> {
    let library = Library::open_global(name)?;
    session.add_library(library);
    session.retry_failed();
    Ok(())
}
