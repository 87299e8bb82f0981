//! A unit made of closures, and a session without workers.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use uruk_session::{
    Dylib, Flags, Found, Interface, Lookup, PoolConfig, Required, Responsibility, Session,
    SessionConfig, SessionError, Symbol, Unit, Visibility,
};

type Work = Box<dyn FnOnce(Responsibility) + Send>;

/// The events of a unit.
#[derive(Default, Debug)]
pub struct Log {
    pub materialized: AtomicUsize,
    pub discarded: Mutex<Vec<Symbol>>,
    pub dropped: AtomicUsize,
}

impl Log {
    pub fn runs(&self) -> usize {
        self.materialized.load(Ordering::SeqCst)
    }
    pub fn drops(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
    pub fn discards(&self) -> Vec<Symbol> {
        self.discarded.lock().unwrap().clone()
    }
}

pub struct Custom {
    interface: Interface,
    log: Arc<Log>,
    work: Option<Work>,
}

impl Custom {
    pub fn new(
        symbols: &[(Symbol, Flags)],
        work: impl FnOnce(Responsibility) + Send + 'static,
    ) -> (Self, Arc<Log>) {
        let log = Arc::new(Log::default());
        let unit = Self {
            interface: symbols.iter().copied().collect(),
            log: Arc::clone(&log),
            work: Some(Box::new(work)),
        };
        (unit, log)
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        self.log.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Unit for Custom {
    fn name(&self) -> &str {
        "custom"
    }
    fn interface(&self) -> Interface {
        self.interface.clone()
    }
    fn materialize(mut self: Box<Self>, responsibility: Responsibility) {
        self.log.materialized.fetch_add(1, Ordering::SeqCst);
        let work = self.work.take().unwrap();
        work(responsibility);
    }
    fn discard(&mut self, _: &Dylib, symbol: Symbol) {
        self.log.discarded.lock().unwrap().push(symbol);
    }
}

pub const EXPORTED: Flags = Flags::EXPORTED;

pub struct Env {
    pub session: Session,
    pub dylib: Dylib,
    pub reported: Arc<Mutex<Vec<SessionError>>>,
    pub a: Symbol,
    pub b: Symbol,
    pub c: Symbol,
    pub d: Symbol,
}

pub fn env(jobs: usize) -> Env {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&reported);
    let session = Session::new(SessionConfig {
        pool: PoolConfig {
            jobs,
            ..PoolConfig::default()
        },
        reporter: Some(Arc::new(move |error: &SessionError| {
            tell.lock().unwrap().push(error.clone());
        })),
        ..SessionConfig::default()
    });
    Env {
        dylib: session.create_dylib("main").unwrap(),
        a: session.intern("a"),
        b: session.intern("b"),
        c: session.intern("c"),
        d: session.intern("d"),
        session,
        reported,
    }
}

/// The place where a responsibility is kept for later.
pub type Kept = Arc<Mutex<Option<Responsibility>>>;

pub fn take(kept: &Kept) -> Responsibility {
    kept.lock().unwrap().take().expect("not materialized yet")
}

impl Env {
    /// Resolves all to 0x1000 + id and emits.
    pub fn plain(&self, symbols: &[Symbol]) -> (Custom, Arc<Log>) {
        self.plain_flags(&symbols.iter().map(|s| (*s, EXPORTED)).collect::<Vec<_>>())
    }

    pub fn plain_flags(&self, symbols: &[(Symbol, Flags)]) -> (Custom, Arc<Log>) {
        Custom::new(symbols, finish)
    }

    /// Keeps the responsibility.
    pub fn kept(&self, symbols: &[Symbol]) -> (Custom, Kept) {
        let kept: Kept = Arc::default();
        let keep = Arc::clone(&kept);
        let symbols: Vec<_> = symbols.iter().map(|s| (*s, EXPORTED)).collect();
        let (unit, _) = Custom::new(&symbols, move |responsibility| {
            *keep.lock().unwrap() = Some(responsibility);
        });
        (unit, kept)
    }

    pub fn all(&self) -> Lookup {
        Lookup::new([(self.dylib.clone(), Visibility::All)])
    }

    pub fn start(&self, symbols: &[Symbol], at: Required) -> uruk_session::LookupFuture {
        let lookup = self.all().symbols(symbols.iter().copied()).at(at);
        self.session.lookup_future(lookup)
    }

    pub fn failing(&self, symbols: &[Symbol]) -> SessionError {
        self.start(symbols, Required::Ready).wait().unwrap_err()
    }
}

pub fn address(symbol: Symbol) -> u64 {
    0x1000 + u64::from(symbol.id())
}

pub fn resolve(responsibility: &Responsibility) -> Result<(), SessionError> {
    let all: Vec<_> = responsibility
        .symbols()
        .iter()
        .map(|(symbol, _)| (*symbol, address(*symbol)))
        .collect();
    responsibility.resolve(&all)
}

pub fn finish(responsibility: Responsibility) {
    if resolve(&responsibility).is_ok() {
        let _ = responsibility.emit(&[]);
    }
}

pub fn oops() -> SessionError {
    SessionError::unit("test", "oops")
}

pub fn check_found(found: &Found, symbol: Symbol) {
    assert_eq!(found.address, address(symbol));
}
