//! A unit that does what a test wants, and lookups of what it defines.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{
    Dylib, Error, Flags, Interface, Jit, Lookup, LookupFuture, Required, Responsibility,
    SessionError, Symbol, Unit, Visibility,
};

/// Longest wait for something that is to happen on another thread.
pub const PATIENCE: Duration = Duration::from_secs(120);

type Work = Box<dyn FnOnce(Responsibility) + Send>;

/// The events of a unit.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn push(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// The same once the unit is gone, which may be after its symbols are ready: the thread that
    /// materialized it has it to the end. Without that it is what was told in a long time.
    pub fn until_dropped(&self) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let all = self.all();
            if all.iter().any(|told| told == "drop") || Instant::now() > end {
                return all;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// See the module.
pub struct TestUnit {
    symbols: Vec<(Symbol, Flags)>,
    init: Option<Symbol>,
    work: Work,
    log: Log,
}

impl TestUnit {
    /// A unit that defines `names`, as exported data unless they end in `()`.
    pub fn new(
        jit: &Jit,
        names: &[&str],
        work: impl FnOnce(Responsibility) + Send + 'static,
    ) -> TestUnit {
        let symbols = names.iter().map(|name| match name.strip_suffix("()") {
            Some(name) => (jit.intern(name), Flags::EXPORTED | Flags::CALLABLE),
            None => (jit.intern(name), Flags::EXPORTED),
        });
        TestUnit {
            symbols: symbols.collect(),
            init: None,
            work: Box::new(work),
            log: Log::default(),
        }
    }

    /// A unit whose symbols are at an address each, ready at once.
    pub fn at(jit: &Jit, addresses: &[(&str, u64)]) -> TestUnit {
        let names: Vec<&str> = addresses.iter().map(|(name, _)| *name).collect();
        let addresses = addresses.iter();
        let known: Vec<(Symbol, u64)> = addresses
            .map(|(name, at)| (jit.intern(name.trim_end_matches("()")), *at))
            .collect();
        TestUnit::new(jit, &names, move |responsibility| {
            let own = known
                .iter()
                .filter(|(symbol, _)| responsibility.covers(*symbol));
            let own: Vec<_> = own.copied().collect();
            if responsibility.resolve(&own).is_ok() {
                let _ = responsibility.emit(&[]);
            }
        })
    }

    /// A unit whose symbols are where [`place`] says, ready at once.
    pub fn plain(jit: &Jit, names: &[&str]) -> TestUnit {
        TestUnit::new(jit, names, finish)
    }

    /// A unit that hands its responsibility over.
    pub fn kept(jit: &Jit, names: &[&str]) -> (TestUnit, Kept) {
        let (sender, receiver) = mpsc::channel();
        let unit = TestUnit::new(jit, names, move |responsibility| {
            // If the receiver is gone, the responsibility is dropped here.
            let _ = sender.send(responsibility);
        });
        (unit, Kept(receiver))
    }

    /// A unit that fails.
    pub fn failing(jit: &Jit, names: &[&str]) -> TestUnit {
        TestUnit::new(jit, names, |responsibility| responsibility.fail(oops()))
    }

    /// All symbols with these flags, too.
    pub fn flags(mut self, flags: Flags) -> TestUnit {
        for (_, own) in &mut self.symbols {
            *own = own.with(flags);
        }
        self
    }

    /// All symbols without these flags.
    pub fn without(mut self, flags: Flags) -> TestUnit {
        for (_, own) in &mut self.symbols {
            *own = own.without(flags);
        }
        self
    }

    pub fn init(mut self, symbol: Symbol) -> TestUnit {
        self.init = Some(symbol);
        self.symbols.push((symbol, Flags::SIDE_EFFECTS_ONLY));
        self
    }

    /// Tells `log` of what happens: `materialize`, `discard NAME`, `drop`.
    pub fn log(mut self, log: &Log) -> TestUnit {
        self.log = log.clone();
        self
    }
}

impl Unit for TestUnit {
    fn name(&self) -> &str {
        "a test's"
    }

    fn interface(&self) -> Interface {
        Interface {
            symbols: self.symbols.clone(),
            init: self.init,
        }
    }

    fn materialize(mut self: Box<Self>, responsibility: Responsibility) {
        self.log.push("materialize");
        let work = std::mem::replace(&mut self.work, Box::new(drop));
        work(responsibility);
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let name = dylib.jit().name_of(symbol);
        self.log.push(format!("discard {name}"));
        self.symbols.retain(|(own, _)| *own != symbol);
    }
}

impl Drop for TestUnit {
    fn drop(&mut self) {
        self.log.push("drop");
    }
}

/// The responsibility of a unit that was asked for.
pub struct Kept(Receiver<Responsibility>);

impl Kept {
    /// Waits for it.
    pub fn take(&self) -> Responsibility {
        let kept = self.0.recv_timeout(PATIENCE);
        kept.expect("the unit was not materialized")
    }
}

/// An address at which nothing is, and that tells whose it is.
pub fn place(symbol: Symbol) -> u64 {
    0x1000 + u64::from(symbol.id())
}

pub fn resolve(responsibility: &Responsibility) -> Result<(), SessionError> {
    let symbols = responsibility.symbols().iter();
    let addresses: Vec<_> = symbols
        .map(|(symbol, _)| (*symbol, place(*symbol)))
        .collect();
    responsibility.resolve(&addresses)
}

pub fn finish(responsibility: Responsibility) {
    if resolve(&responsibility).is_ok() {
        let _ = responsibility.emit(&[]);
    }
}

pub fn oops() -> SessionError {
    SessionError::unit("test", "oops")
}

/// A lookup in the main dylib alone, of nothing so far.
pub fn ask(jit: &Jit) -> Lookup {
    Lookup::new([(jit.main(), Visibility::All)])
}

pub fn start(jit: &Jit, names: &[&str], at: Required) -> LookupFuture {
    let symbols = names.iter().map(|name| jit.intern(name));
    jit.lookup_future(ask(jit).symbols(symbols).at(at))
}

/// The error of a lookup of these names.
pub fn failure(jit: &Jit, names: &[&str]) -> SessionError {
    let symbols = names.iter().map(|name| jit.intern(name));
    let found = jit.lookup_all(ask(jit).symbols(symbols));
    session(found.map(drop))
}

/// The error of the session.
pub fn session<T>(result: Result<T, Error>) -> SessionError {
    match result {
        Err(Error::Session(error)) => error,
        Err(error) => panic!("not of the session: {error:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// The names in an error.
pub fn names(error: &SessionError) -> Vec<String> {
    let names = error.names().map(|names| names.names());
    let names = names.unwrap_or_else(|| panic!("without names: {error:?}"));
    names.into_iter().map(str::to_owned).collect()
}

/// A unit at work on its symbols, which have their addresses, and a lookup of the first.
pub fn at_work(jit: &Jit, names: &[&str]) -> (Responsibility, LookupFuture) {
    let (unit, kept) = TestUnit::kept(jit, names);
    jit.main().define(unit).unwrap();
    let future = start(jit, &names[..1], Required::Ready);
    let responsibility = kept.take();
    resolve(&responsibility).unwrap();
    (responsibility, future)
}

/// Errors that no caller waited for.
pub type Reports = Arc<Mutex<Vec<SessionError>>>;

/// A session that writes down the errors that no caller waits for.
pub fn reporting() -> (Jit, Reports) {
    let reports = Reports::default();
    let sink = Arc::clone(&reports);
    let tell = move |error: &SessionError| sink.lock().unwrap().push(error.clone());
    let jit = Jit::builder().on_error(tell).on_failure(minus_one);
    (jit.build().unwrap(), reports)
}

/// Calls that fail go to this function.
pub extern "C" fn failed() -> i64 {
    -1
}

/// Has calls that fail return -1.
pub extern "C" fn minus_one(_: uruk::FunctionId) -> u64 {
    failed as *const () as u64
}

/// Calls a function of the main dylib.
pub fn call(jit: &Jit, name: &str) -> i64 {
    // SAFETY: functions of the tests, which take nothing and return a number.
    let function = unsafe { jit.function::<extern "C" fn() -> i64>(name) };
    function.expect("a function").call()
}

pub extern "C" fn seven() -> i64 {
    7
}

pub extern "C" fn eight() -> i64 {
    8
}

pub fn address(of: extern "C" fn() -> i64) -> u64 {
    of as *const () as u64
}

/// Fails instead of hanging.
pub fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || drop(sender.send(work())));
    let result = receiver.recv_timeout(PATIENCE);
    result.unwrap_or_else(|_| panic!("{what} hangs, or has panicked"))
}
