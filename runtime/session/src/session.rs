//! The session handle, and the lock of its state.
//!
//! Changes of the state are made by `session/perform.rs`; the operations of the embedder are in
//! `session/tables.rs` and `session/lookups.rs`.

mod lookups;
mod perform;
mod tables;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use uruk_base::locks::{Covered, ranks};

use crate::error::SessionError;
use crate::gate::InsideGate;
use crate::inside::Behalf;
use crate::number::DylibId;
use crate::pool::{Pool, PoolConfig};
use crate::resource::TrackerEvent;
use crate::shared::Visibility;
use crate::state::State;
use crate::symbol::{Symbol, SymbolPool};
use crate::sync::{Mutex, MutexGuard};

type Reporter = Arc<dyn Fn(&SessionError) + Send + Sync>;
type TrackerHook = Arc<dyn Fn(&TrackerEvent) + Send + Sync>;

/// Settings of a [`Session`].
#[derive(Clone, Default)]
pub struct SessionConfig {
    /// The settings of the workers.
    pub pool: PoolConfig,
    /// Names to share with other sessions.
    pub symbols: Option<Arc<SymbolPool>>,
    /// Callback for errors that no caller waits for. By default they are logged.
    pub reporter: Option<Reporter>,
    /// Callback for removed or transferred trackers, after the fact.
    pub on_tracker_event: Option<TrackerHook>,
}

impl fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionConfig")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

struct Inner {
    symbols: Arc<SymbolPool>,
    pool: Pool,
    state: Mutex<State, ranks::SessionState>,
    reporter: Reporter,
    on_tracker_event: Option<TrackerHook>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.quit();
        for dylib in self.state.lock().dylibs.values() {
            dylib.shared.order.clear();
        }
    }
}

/// One JIT'd program; the clones are one session.
///
/// Units and generators that hold a session keep it alive until
/// [`Session::end`]; they may hold a [`WeakSession`].
#[derive(Clone)]
pub struct Session(Arc<Inner>);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:p})", Arc::as_ptr(&self.0))
    }
}

/// A weak handle of a session.
#[derive(Clone)]
pub struct WeakSession(Weak<Inner>);

impl fmt::Debug for WeakSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSession")
    }
}

impl WeakSession {
    /// The session, if it still exists.
    pub fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(Session)
    }
}

/// The state under its lock, and inside the gate; released in this order.
pub(crate) struct Guard<'a> {
    state: MutexGuard<'a, State>,
    _inside: InsideGate<'a>,
    _covered: Covered,
}

impl std::ops::Deref for Guard<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// A lookup that waits: for definitions, or for symbols that units make.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StillMissing {
    /// The dylibs it searches; empty for a lookup that has found all definitions.
    pub order: Vec<(DylibId, Visibility)>,
    /// The symbols that none of these defines.
    pub symbols: Vec<Symbol>,
    /// Symbols that are defined, but not in the state that the lookup requires: units have not made
    /// them, or the emitted code depends on them. Two units that wait for each other stay here.
    pub in_production: Vec<(DylibId, Symbol)>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new(SessionConfig::default())
    }
}

impl Session {
    /// An empty session.
    pub fn new(config: SessionConfig) -> Self {
        let reporter: Reporter = config
            .reporter
            .unwrap_or_else(|| Arc::new(|error| tracing::error!(%error, "session error")));
        let symbols = config.symbols.unwrap_or_default();
        let tell = Arc::clone(&reporter);
        let on_panic = Arc::new(move |text: &str| {
            tell(&SessionError::Panicked { text: text.into() });
        });
        Self(Arc::new(Inner {
            pool: Pool::new(config.pool, on_panic),
            state: Mutex::new(State::new(Arc::clone(&symbols))),
            symbols,
            reporter,
            on_tracker_event: config.on_tracker_event,
        }))
    }

    /// A handle that does not keep the session alive.
    pub fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.0))
    }

    /// Bytes of the session's tables: names, symbols, units, trackers. Memory that units and
    /// resources point to is not counted.
    pub fn bytes(&self) -> usize {
        self.lock().bytes()
    }

    /// The names.
    #[inline]
    pub fn symbols(&self) -> &Arc<SymbolPool> {
        &self.0.symbols
    }

    /// The symbol of a name.
    #[inline]
    pub fn intern(&self, name: &str) -> Symbol {
        self.0.symbols.intern(name)
    }

    /// The name of a symbol.
    #[inline]
    pub fn name(&self, symbol: Symbol) -> &str {
        self.0.symbols.name(symbol)
    }

    /// The workers.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Passes an error to the reporter.
    pub fn report(&self, error: &SessionError) {
        // A panic of the reporter cannot be reported.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.0.reporter)(error)));
    }

    /// Starts a task, on behalf of the question this thread works for.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        let behalf = Behalf::now();
        self.0.pool.spawn(move || {
            let _working = behalf.enter();
            // The thread that runs it may lack a cover.
            let _covered = Covered::ensure();
            work();
        });
    }

    pub(crate) fn lock(&self) -> Guard<'_> {
        let covered = Covered::ensure();
        let inside = self.0.pool.gate().enter();
        Guard {
            state: self.0.state.lock(),
            _inside: inside,
            _covered: covered,
        }
    }

    /// Whether both are handles of one session.
    #[inline]
    pub(crate) fn is(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Runs a callback of the embedder; a panic is reported.
    pub(crate) fn guarded(&self, call: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_default().into();
            self.report(&SessionError::Panicked { text });
        }
    }
}
