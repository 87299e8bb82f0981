//! Names of programs and what they stand for: the façade's side of the session.
//!
//! A dylib of the library is a dylib of the session with a second one in its link
//! order, `host`, which answers for the process: first what `guest` provides, then,
//! by a generator, what the allowed libraries have. Functions are defined at the
//! address of their stub, ready from the start; a stub's address tells its function.
//! Thread-locals have no address; the session knows them by the place of a record here, so
//! that they are found, hidden, duplicated and removed like all other names.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use uruk_base::FunctionId;
use uruk_base::locks::RwLock;
use uruk_session::{
    AbsoluteSymbols, Dylib, Flags, GeneratorRequest, Lookup, PoolConfig, Session, SessionConfig,
    SessionError, Symbol, SymbolPool, Tracker, Visibility,
};
use uruk_stubs::StubTable;

use crate::api::builder::Reporter;
use crate::fork::gate;
use crate::guest::process::Process;
use crate::removal::known::Known;
use crate::removal::life::Lives;
use crate::units;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Definition {
    /// A function behind a stub.
    Function { id: FunctionId },
    /// A fixed address.
    Address(u64),
    /// A thread-local variable.
    Tls { module: u64, offset: u64 },
}

/// A name to be defined.
pub(crate) struct Name {
    pub(crate) name: Box<str>,
    pub(crate) definition: Definition,
    /// Gives way to an earlier definition instead of being an error.
    pub(crate) weak: bool,
    /// Found by its own dylib only.
    pub(crate) hidden: bool,
}

impl Name {
    /// The function it names.
    pub(crate) fn function(&self) -> Option<FunctionId> {
        match self.definition {
            Definition::Function { id } => Some(id),
            _ => None,
        }
    }

    pub(crate) fn strong(name: impl Into<Box<str>>, definition: Definition) -> Name {
        Name {
            name: name.into(),
            definition,
            weak: false,
            hidden: false,
        }
    }

    /// The same, hidden or not.
    pub(crate) fn hidden(mut self, hidden: bool) -> Name {
        self.hidden = hidden;
        self
    }
}

/// A thread-local variable: module word and offset.
#[derive(Debug, Clone, Copy)]
struct ThreadLocal {
    module: u64,
    offset: u64,
}

/// Thread-local variables by what stands for them in the session: the address of the record,
/// which nothing else of the process has as long as it is there, and [`RECORD`].
type ThreadLocals = HashMap<u64, Box<ThreadLocal>>;

/// No address of the process has this bit, and a value with it is ready nowhere without a
/// lock: who reads ready addresses only meets no record.
const RECORD: u64 = 1 << 63;

/// The session and what the façade keeps beside it.
pub(crate) struct Names {
    session: Session,
    stubs: Arc<StubTable>,
    host: Dylib,
    /// Holds the bodies of functions, each under its own tracker.
    pub(crate) bodies: Dylib,
    thread_locals: RwLock<ThreadLocals>,
    /// Data that lies elsewhere than its name was defined at: old address and new one.
    relocated: RwLock<HashMap<u64, u64>>,
    /// The lives of images, by their trackers.
    pub(crate) lives: Lives,
    /// True from the first such address on.
    has_relocated: AtomicBool,
    /// Functions whose stubs something may know besides the names.
    pub(crate) known: Known,
    /// Those of them that code or data was linked against.
    pub(crate) linked: Known,
    /// Those whose address only calls under way have had, which it is handed on to.
    pub(crate) passed: Known,
}

impl Names {
    /// A session whose host dylib answers with `process`.
    pub(crate) fn new(
        stubs: &Arc<StubTable>,
        process: Arc<RwLock<Process>>,
        reporter: Option<Reporter>,
    ) -> Result<Names, SessionError> {
        // The façade's own workers do all compiling; lookups run inline on them.
        let pool = PoolConfig {
            jobs: 0,
            ..PoolConfig::default()
        };
        let lives = Lives::default();
        let following = lives.clone();
        let session = Session::new(SessionConfig {
            pool,
            reporter,
            symbols: Some(Arc::new(SymbolPool::shown_by(units::shown))),
            on_tracker_event: Some(Arc::new(move |event| following.follow(event))),
        });
        let host = session.create_dylib("host")?;
        let bodies = session.create_dylib("bodies")?;
        host.add_generator(move |ask: &GeneratorRequest| define_from_process(ask, &process))?;
        Ok(Names {
            session,
            stubs: Arc::clone(stubs),
            host,
            bodies,
            thread_locals: RwLock::default(),
            relocated: RwLock::default(),
            lives,
            has_relocated: AtomicBool::new(false),
            known: Known::new(stub_limit(stubs)),
            linked: Known::new(stub_limit(stubs)),
            passed: Known::new(stub_limit(stubs)),
        })
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The dylib that stands for the process.
    pub(crate) fn host(&self) -> &Dylib {
        &self.host
    }

    /// A dylib that searches itself, then the process.
    pub(crate) fn create_dylib(&self, name: &str) -> Result<Dylib, SessionError> {
        let dylib = self.create_bare_dylib(name)?;
        dylib.set_link_order(&[(self.host.clone(), Visibility::All)])?;
        Ok(dylib)
    }

    /// A dylib that searches itself only.
    pub(crate) fn create_bare_dylib(&self, name: &str) -> Result<Dylib, SessionError> {
        self.session.create_dylib(name)
    }

    /// Defines names under `tracker`, all or none.
    pub(crate) fn define(&self, tracker: &Tracker, names: Vec<Name>) -> Result<(), SessionError> {
        let mut symbols = Vec::with_capacity(names.len());
        for name in names {
            let symbol = self.session.intern(&name.name);
            let mut flags = Flags::NONE;
            if let Definition::Function { .. } = name.definition {
                flags = flags.with(Flags::CALLABLE);
            }
            let address = self.known_as(name.definition);
            if !name.hidden {
                flags = flags.with(Flags::EXPORTED);
            }
            if name.weak {
                flags = flags.with(Flags::WEAK);
            }
            symbols.push((symbol, address, flags));
        }
        if symbols.is_empty() {
            return Ok(());
        }
        tracker.define(AbsoluteSymbols::new(symbols))
    }

    /// What the session is to know a definition as.
    pub(crate) fn known_as(&self, definition: Definition) -> u64 {
        match definition {
            Definition::Function { id } => self.stubs.stub_address(id).0,
            Definition::Address(address) => address,
            Definition::Tls { module, offset } => {
                self.note_thread_local(ThreadLocal { module, offset })
            }
        }
    }

    /// What stands for a thread-local in the session.
    fn note_thread_local(&self, variable: ThreadLocal) -> u64 {
        let record = Box::new(variable);
        let address = std::ptr::from_ref(&*record).addr() as u64 | RECORD;
        let mut held = self
            .thread_locals
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        held.insert(address, record);
        address
    }

    /// Forgets the thread-locals of a module, whose names are gone.
    pub(crate) fn forget_thread_locals(&self, module: u64) {
        let mut held = self
            .thread_locals
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, variable| variable.module != module);
    }

    /// What `name` means in `dylib` and its link order, the process included. Takes no
    /// lock for names of `dylib` that were asked for before.
    pub(crate) fn find(&self, dylib: &Dylib, name: &str) -> Option<Definition> {
        self.try_find(dylib, name).unwrap_or_else(|error| {
            self.session.report(&error);
            None
        })
    }

    /// As [`Names::find`], with what a unit or generator failed for.
    pub(crate) fn try_find(
        &self,
        dylib: &Dylib,
        name: &str,
    ) -> Result<Option<Definition>, SessionError> {
        let symbol = self.session.intern(name);
        let address = dylib.find(symbol)?;
        Ok(address.map(|address| self.meaning(address)))
    }

    /// What those of `names` mean that are defined in `order`.
    pub(crate) fn find_all(
        &self,
        order: &[(Dylib, Visibility)],
        names: HashSet<&str>,
    ) -> HashMap<Box<str>, Definition> {
        if names.is_empty() || order.is_empty() {
            return HashMap::new();
        }
        let lookup = Lookup::new(order.iter().cloned());
        let lookup = names.into_iter().fold(lookup, |lookup, name| {
            lookup.weak(self.session.intern(name))
        });
        match self.session.lookup(lookup) {
            Ok(found) => {
                let found = found.iter();
                let name = |symbol| Box::from(self.session.name(symbol));
                found
                    .map(|found| (name(found.symbol), self.meaning(found.address)))
                    .collect()
            }
            Err(error) => {
                self.session.report(&error);
                HashMap::new()
            }
        }
    }

    /// What the session has an address for.
    pub(crate) fn meaning(&self, address: u64) -> Definition {
        if let Some(id) = self.stubs.function_at(address) {
            return Definition::Function { id };
        }
        if address & RECORD != 0 {
            let held = self.thread_locals.read();
            let held = held.unwrap_or_else(PoisonError::into_inner);
            if let Some(&ThreadLocal { module, offset }) = held.get(&address).map(|held| &**held) {
                return Definition::Tls { module, offset };
            }
        }
        Definition::Address(self.relocated(address))
    }

    /// The address of what `dylib` itself defines, if it is ready. Takes no lock: it may be
    /// called without a pass, which costs two system calls, and where handlers may run.
    pub(crate) fn ready_address(&self, dylib: &Dylib, name: &str) -> Option<u64> {
        let address = dylib.ready_name(name)?;
        self.is_final(address).then_some(address)
    }

    /// Whether `name` is known to mean a function of `dylib`'s own. Has nothing materialized.
    pub(crate) fn is_ready_function(&self, dylib: &Dylib, name: &str) -> bool {
        let ready = dylib.ready_name(name);
        ready.is_some_and(|address| self.stubs.function_at(address).is_some())
    }

    /// The address of what is ready in `dylib` or its link order. Takes no lock, but may
    /// allocate: not for where handlers run.
    pub(crate) fn ready_symbol(&self, dylib: &Dylib, symbol: Symbol) -> Option<u64> {
        let address = dylib.ready_in_order(symbol)?;
        let given = !self.give(address) || dylib.ready_in_order(symbol) == Some(address);
        (given && self.is_final(address)).then_some(address)
    }

    /// Notes that an address leaves the library; whether it is that of a function of which none did
    /// before. A caller without a pass looks again then whether the name means it.
    pub(crate) fn give(&self, address: u64) -> bool {
        let function = self.stubs.function_at(address);
        function.is_some_and(|id| self.known.note(id))
    }

    /// As `ready_symbol`, by name.
    pub(crate) fn ready_symbol_of(&self, dylib: &Dylib, name: &str) -> Option<u64> {
        self.ready_symbol(dylib, self.session.symbols().find(name)?)
    }

    /// Whether what the session knows by `address` is there. Takes no lock.
    pub(crate) fn is_final(&self, address: u64) -> bool {
        let is_stub = || self.stubs.function_at(address).is_some();
        // Relaxed: whoever asks while data moves gets one address or the other.
        address & RECORD == 0 && (!self.has_relocated.load(Ordering::Relaxed) || is_stub())
    }

    /// True if `name` is defined in `dylib` itself, not only in its surroundings.
    pub(crate) fn is_own(&self, dylib: &Dylib, name: &str) -> bool {
        let symbol = self.session.intern(name);
        self.session.symbol_state(dylib, symbol).is_some()
    }

    /// True if `dylib` itself defines `name` for others. Takes no lock.
    pub(crate) fn exports(&self, dylib: &Dylib, name: &str) -> bool {
        let symbol = self.session.symbols().find(name);
        symbol.is_some_and(|symbol| dylib.exports(symbol))
    }

    /// Has names of data at `old` mean `new`, or `old` again.
    pub(crate) fn relocate(&self, old: u64, new: Option<u64>) {
        let mut relocated = self
            .relocated
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        self.has_relocated.store(true, Ordering::Relaxed);
        match new {
            Some(new) => relocated.insert(old, new),
            None => relocated.remove(&old),
        };
    }

    fn relocated(&self, mut address: u64) -> u64 {
        let relocated = self
            .relocated
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        // Each step leads to storage that was made later, so there are no circles.
        while let Some(&next) = relocated.get(&address) {
            address = next;
        }
        address
    }

    /// What `name` means if `dylib` itself defines it.
    pub(crate) fn find_own(&self, dylib: &Dylib, name: &str) -> Option<Definition> {
        self.is_own(dylib, name)
            .then(|| self.find(dylib, name))
            .flatten()
    }
}

/// A number above the indexes of all functions.
fn stub_limit(stubs: &StubTable) -> usize {
    let capacity = stubs.stats().capacity;
    // A cell of each page of stubs is no function's.
    capacity + capacity / 128 + 1
}

/// Defines what the allowed libraries have of a lookup's missing names. Thread-locals
/// are left out: their address would be the asking thread's own.
fn define_from_process(
    ask: &GeneratorRequest,
    process: &RwLock<Process>,
) -> Result<(), SessionError> {
    let _pass = gate::enter();
    let process = process.read().unwrap_or_else(PoisonError::into_inner);
    let session = ask.session();
    let found: Vec<_> = ask
        .missing()
        .iter()
        .filter_map(|(symbol, _)| {
            let address = process.find(session.name(*symbol))?;
            Some((*symbol, address, Flags::EXPORTED))
        })
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    ask.dylib().define(AbsoluteSymbols::new(found))
}
