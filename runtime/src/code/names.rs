//! Names of programs and their definitions: the library's side of the session.
//!
//! A dylib of the library is a dylib of the session with a second one in its link order, `host`,
//! which answers for the process. It has first the definitions of `guest`, then, by a generator,
//! the exports of the allowed libraries. Functions are defined at the address of their stub, ready
//! from the start; a stub's address identifies its function. Thread-locals have no address; the
//! session knows them by the address of a record here, so that they are found, hidden, duplicated
//! and removed like all other names.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uruk_base::FunctionId;
use uruk_base::locks::{RwLock, ranks};
use uruk_codegen::BODY_PREFIX;
use uruk_session::{
    AbsoluteSymbols, Dylib, Flags, GeneratorRequest, Lookup, PoolConfig, Session, SessionConfig,
    SessionError, Symbol, SymbolPool, Tracker, Visibility,
};
use uruk_stubs::StubTable;

use crate::code::known::KnownFunctions;
use crate::code::life::Lives;
use crate::code::moved::MovedAddresses;
use crate::code::unit_body;
use crate::fork::{self, gate};
use crate::host::process::Process;

/// Callback for session errors that no caller waits for.
pub(crate) type Reporter = Arc<dyn Fn(&SessionError) + Send + Sync>;

/// The definition of a name.
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
pub(crate) struct NewName {
    pub(crate) name: Box<str>,
    pub(crate) definition: Definition,
    /// Yields to an earlier definition instead of being an error.
    pub(crate) weak: bool,
    /// Whether only its own dylib finds it.
    pub(crate) hidden: bool,
}

impl NewName {
    /// The function it names.
    pub(crate) fn function(&self) -> Option<FunctionId> {
        match self.definition {
            Definition::Function { id } => Some(id),
            _ => None,
        }
    }

    pub(crate) fn strong(name: impl Into<Box<str>>, definition: Definition) -> NewName {
        NewName {
            name: name.into(),
            definition,
            weak: false,
            hidden: false,
        }
    }

    /// Sets whether the name is hidden.
    pub(crate) fn hidden(mut self, hidden: bool) -> NewName {
        self.hidden = hidden;
        self
    }
}

/// A thread-local variable: module word and offset.
#[derive(Debug, Clone, Copy)]
struct ThreadLocalRecord {
    module: u64,
    offset: u64,
}

/// Thread-local variables by their key in the session: the address of the record, which is unique
/// in the process while it exists, with [`RECORD`].
type ThreadLocalRecords = HashMap<u64, Box<ThreadLocalRecord>>;

/// No address of the process has this bit. A value with it is never ready without a lock, so a
/// reader of ready addresses never finds a record.
const RECORD: u64 = 1 << 63;

/// The session, with the library's tables beside it.
pub(crate) struct Names {
    session: Session,
    stubs: Arc<StubTable>,
    host: Dylib,
    /// The dylib of the bodies of functions, each under its own tracker.
    pub(crate) bodies: Dylib,
    thread_locals: RwLock<ThreadLocalRecords>,
    /// Variables that are no longer at the address of their definition.
    moved: RwLock<MovedAddresses>,
    /// The lives of images, by their trackers.
    pub(crate) lives: Lives,
    /// Set when the first such address is added.
    has_relocated: AtomicBool,
    /// Functions whose stubs may be known otherwise than by name.
    pub(crate) known: KnownFunctions,
    /// Those of them against which code or data was linked.
    pub(crate) linked: KnownFunctions,
    /// Those whose address was only used by calls in progress, to which it is passed on.
    pub(crate) passed: KnownFunctions,
}

impl Names {
    /// The symbol of the body with that number.
    pub(crate) fn body_symbol(&self, number: usize) -> Symbol {
        self.session().intern(&format!("{BODY_PREFIX}{number}"))
    }

    /// A session whose host dylib answers with `process`.
    pub(crate) fn new(
        stubs: &Arc<StubTable>,
        process: Arc<RwLock<Process, ranks::CodeDirectoryProcess>>,
        reporter: Option<Reporter>,
    ) -> Result<Names, SessionError> {
        // The library's own workers do all compiling; lookups run inline on them.
        let spawn = |name, work: Box<dyn Fn() + Send>| {
            fork::thread::spawn(name, work).map_err(io::Error::other)
        };
        let pool = PoolConfig {
            jobs: 0,
            spawn: Some(Arc::new(spawn)),
            ..PoolConfig::default()
        };
        let lives = Lives::default();
        let following = lives.clone();
        let session = Session::new(SessionConfig {
            pool,
            reporter,
            symbols: Some(Arc::new(SymbolPool::shown_by(unit_body::shown))),
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
            moved: RwLock::default(),
            lives,
            has_relocated: AtomicBool::new(false),
            known: KnownFunctions::new(stub_limit(stubs)),
            linked: KnownFunctions::new(stub_limit(stubs)),
            passed: KnownFunctions::new(stub_limit(stubs)),
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
    pub(crate) fn define(
        &self,
        tracker: &Tracker,
        names: Vec<NewName>,
    ) -> Result<(), SessionError> {
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

    /// The value by which the session knows a definition.
    pub(crate) fn known_as(&self, definition: Definition) -> u64 {
        match definition {
            Definition::Function { id } => self.stubs.stub_address(id).0,
            Definition::Address(address) => address,
            Definition::Tls { module, offset } => {
                self.note_thread_local(ThreadLocalRecord { module, offset })
            }
        }
    }

    /// The session's key of a thread-local.
    fn note_thread_local(&self, variable: ThreadLocalRecord) -> u64 {
        let record = Box::new(variable);
        let address = std::ptr::from_ref(&*record).addr() as u64 | RECORD;
        let mut held = self.thread_locals.write();
        held.insert(address, record);
        address
    }

    /// Removes the thread-locals of a module, whose names were removed.
    pub(crate) fn forget_thread_locals(&self, module: u64) {
        let mut held = self.thread_locals.write();
        held.retain(|_, variable| variable.module != module);
    }

    /// The definition of `name` in `dylib` and its link order, the process included. Takes no lock
    /// for names of `dylib` that were looked up before.
    pub(crate) fn find(&self, dylib: &Dylib, name: &str) -> Option<Definition> {
        self.try_find(dylib, name).unwrap_or_else(|error| {
            self.session.report(&error);
            None
        })
    }

    /// Like [`Names::find`], with the error of a unit or generator.
    pub(crate) fn try_find(
        &self,
        dylib: &Dylib,
        name: &str,
    ) -> Result<Option<Definition>, SessionError> {
        let symbol = self.session.intern(name);
        let address = dylib.find(symbol)?;
        Ok(address.map(|address| self.meaning(address)))
    }

    /// The definitions of those `names` that are defined in `order`.
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

    /// The definition behind the session's value `address`.
    pub(crate) fn meaning(&self, address: u64) -> Definition {
        if let Some(id) = self.stubs.function_at(address) {
            return Definition::Function { id };
        }
        if address & RECORD != 0 {
            let held = self.thread_locals.read();
            if let Some(&ThreadLocalRecord { module, offset }) =
                held.get(&address).map(|held| &**held)
            {
                return Definition::Tls { module, offset };
            }
        }
        Definition::Address(self.moved.read().current(address))
    }

    /// The address of a name that `dylib` itself defines, if it is ready. Takes no lock: it may be
    /// called without a pass, which costs two system calls, and in handlers.
    pub(crate) fn ready_address(&self, dylib: &Dylib, name: &str) -> Option<u64> {
        let address = dylib.ready_name(name)?;
        self.is_final(address).then_some(address)
    }

    /// Whether `name` is known to be a function of `dylib`'s own. Materializes nothing.
    pub(crate) fn is_ready_function(&self, dylib: &Dylib, name: &str) -> bool {
        let ready = dylib.ready_name(name);
        ready.is_some_and(|address| self.stubs.function_at(address).is_some())
    }

    /// The address of a symbol that is ready in `dylib` or its link order. Takes no lock, but may
    /// allocate: not for use in handlers.
    pub(crate) fn ready_symbol(&self, dylib: &Dylib, symbol: Symbol) -> Option<u64> {
        let address = dylib.ready_in_order(symbol)?;
        let given = !self.give(address) || dylib.ready_in_order(symbol) == Some(address);
        (given && self.is_final(address)).then_some(address)
    }

    /// Notes that an address leaves the library; returns whether it is the first time for that
    /// function. A caller without a pass then looks the name up again.
    pub(crate) fn give(&self, address: u64) -> bool {
        let function = self.stubs.function_at(address);
        function.is_some_and(|id| self.known.note(id))
    }

    /// Like `ready_symbol`, by name.
    pub(crate) fn ready_symbol_of(&self, dylib: &Dylib, name: &str) -> Option<u64> {
        self.ready_symbol(dylib, self.session.symbols().find(name)?)
    }

    /// Whether the session's value is the definition's actual address. Takes no lock.
    pub(super) fn is_final(&self, address: u64) -> bool {
        let is_stub = || self.stubs.function_at(address).is_some();
        // Relaxed: a caller that asks while data moves gets one address or the other.
        address & RECORD == 0 && (!self.has_relocated.load(Ordering::Relaxed) || is_stub())
    }

    /// True if `name` is defined in `dylib` itself, not only in its surroundings.
    pub(crate) fn is_own(&self, dylib: &Dylib, name: &str) -> bool {
        let symbol = self.session.intern(name);
        self.session.symbol_state(dylib, symbol).is_some()
    }

    /// True if `dylib` itself defines and exports `name`. Takes no lock.
    pub(crate) fn exports(&self, dylib: &Dylib, name: &str) -> bool {
        let symbol = self.session.symbols().find(name);
        symbol.is_some_and(|symbol| dylib.exports(symbol))
    }

    /// Redirects names of data at `old` to `new`.
    pub(crate) fn relocate(&self, old: u64, new: u64) {
        let mut moved = self.moved.write();
        self.has_relocated.store(true, Ordering::Relaxed);
        moved.relocate(old, new);
    }

    /// Redirects names of data no longer to `new`.
    pub(crate) fn move_back(&self, new: u64) {
        self.moved.write().move_back(new);
    }

    /// The definition of `name` if `dylib` itself defines it.
    pub(crate) fn find_own(&self, dylib: &Dylib, name: &str) -> Option<Definition> {
        self.is_own(dylib, name)
            .then(|| self.find(dylib, name))
            .flatten()
    }
}

/// A number above the indexes of all functions.
fn stub_limit(stubs: &StubTable) -> usize {
    let capacity = stubs.stats().capacity;
    // A cell of each page of stubs belongs to no function.
    capacity + capacity / 128 + 1
}

/// Defines the missing names of a lookup that the allowed libraries export. Thread-locals are left
/// out: their address would be the calling thread's own.
fn define_from_process(
    ask: &GeneratorRequest,
    process: &RwLock<Process, ranks::CodeDirectoryProcess>,
) -> Result<(), SessionError> {
    let _pass = gate::enter();
    let process = process.read();
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

/// Definitions of labels, by their names in the assembly.
pub(crate) type Labels = HashMap<Box<str>, Definition>;
