//! The session handle. Lookups are in `session/lookups.rs`.

mod lookups;
mod lost;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use uruk_base::locks::Covered;

use crate::dylib::{Dylib, DylibId, DylibShared, Visibility};
use crate::effects::{Effects, Launching};
use crate::error::SessionError;
use crate::gate::Inside;
use crate::inside;
use crate::lookup::{Lookup, Need, Required};
use crate::pool::{Pool, PoolConfig};
use crate::responsibility::Responsibility;
use crate::slab::Key;
use crate::state::{DylibState, NumberMap, NumberSet, State};
use crate::symbol::{Symbol, SymbolPool};
use crate::sync::{Mutex, MutexGuard};
use crate::tracker::{Resource, Tracker, TrackerEvent, TrackerKey};
use crate::unit::Unit;

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
    state: Mutex<State>,
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
    _inside: Inside<'a>,
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
        let question = inside::now();
        self.0.pool.spawn(move || {
            let _inside = inside::set(question);
            // The thread that runs it may lack a cover.
            let _covered = Covered::ensure();
            work();
        });
    }

    pub(crate) fn tracker_event(&self, event: &TrackerEvent) {
        if let Some(hook) = &self.0.on_tracker_event {
            self.guarded(|| hook(event));
        }
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

    /// Changes the state, then performs the effects.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let result = change(&mut self.lock(), &mut effects);
        effects.run(self);
        result
    }

    /// The number of a dylib, which must be one of this session.
    pub(crate) fn own(&self, dylib: &Dylib) -> Result<DylibId, SessionError> {
        match self.is(dylib.session()) {
            true => Ok(dylib.id()),
            false => Err(SessionError::ForeignDylib {
                dylib: Arc::clone(&dylib.shared().name),
            }),
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

    /// A new dylib.
    ///
    /// # Errors
    /// `DylibExists`, `Ended`.
    pub fn create_dylib(&self, name: &str) -> Result<Dylib, SessionError> {
        let mut state = self.lock();
        if state.ended {
            return Err(SessionError::Ended);
        }
        if let Some((dylib, _)) = state.names.get_key_value(name) {
            let dylib = Arc::clone(dylib);
            return Err(SessionError::DylibExists { dylib });
        }
        let id = state.numbers.next().ok_or(SessionError::Unsupported {
            what: "more than 2^32 dylibs",
        })?;
        let shared = Arc::new(DylibShared::new(id, name));
        let dylib = DylibState {
            shared: shared.clone(),
            symbols: NumberMap::default(),
            default_tracker: TrackerKey::NONE,
            trackers: NumberSet::default(),
            link_order: Vec::new(),
            searchers: NumberSet::default(),
            generators: Vec::new(),
            inits: Vec::new(),
        };
        state.dylibs.insert(id, dylib);
        let tracker = state.add_tracker(shared.id);
        if let Some(dylib) = state.dylib_mut(shared.id) {
            dylib.default_tracker = tracker;
        }
        state.names.insert(Arc::clone(&shared.name), shared.id);
        Ok(Dylib::new(self, &shared))
    }

    /// The dylib of that name.
    pub fn dylib(&self, name: &str) -> Option<Dylib> {
        let state = self.lock();
        let shared = &state.dylib(*state.names.get(name)?)?.shared;
        Some(Dylib::new(self, shared))
    }

    /// The dylib of that number.
    pub fn dylib_by_id(&self, id: DylibId) -> Option<Dylib> {
        let state = self.lock();
        Some(Dylib::new(self, &state.dylib(id)?.shared))
    }

    /// Removes dylibs and all their definitions, in this order. Later definitions and work in
    /// flight get an error.
    ///
    /// # Errors
    /// `DylibDefunct`, `ForeignDylib`; nothing is changed then.
    pub fn remove_dylibs(&self, dylibs: &[Dylib]) -> Result<(), SessionError> {
        for dylib in dylibs {
            self.own(dylib)?;
        }
        let shared: Vec<_> = dylibs.iter().map(|d| Arc::clone(d.shared())).collect();
        self.change(|state, effects| state.remove_dylibs(&shared, effects))
    }

    /// Removes everything, the youngest dylib first, and ends the workers. All later operations
    /// return `Ended`. Existing errors stay valid.
    ///
    /// # Errors
    /// `Ended`, the second time.
    pub fn end(&self) -> Result<(), SessionError> {
        let result = self.change(|state, effects| {
            if state.ended {
                return Err(SessionError::Ended);
            }
            let dylibs = state.dylibs.values().map(|dylib| &dylib.shared);
            let mut all: Vec<_> = dylibs.cloned().collect();
            all.sort_unstable_by_key(|dylib| std::cmp::Reverse(state.numbers.place(dylib.id)));
            state.remove_dylibs(&all, effects)?;
            state.end_waits(effects);
            state.ended = true;
            Ok(())
        });
        self.0.pool.quit();
        result
    }

    pub(crate) fn define(
        &self,
        shared: &Arc<DylibShared>,
        tracker: Option<TrackerKey>,
        unit: Box<dyn Unit>,
    ) -> Result<(), SessionError> {
        let interface = unit.interface();
        self.change(|state, effects| state.define(shared, tracker, unit, interface, effects))
            .map(|_| ())
    }

    pub(crate) fn drop_tracker(&self, shared: &Arc<DylibShared>, key: TrackerKey) {
        self.change(|state, effects| {
            if state.tentative.contains(&key) {
                // The tracker exists.
                let _ = state.remove_tracker(key, effects);
                return;
            }
            let default = state.dylib(shared.id).map(|dylib| dylib.default_tracker);
            if let Some(default) = default
                && state.trackers.contains_key(&key)
            {
                // Both exist and belong to this dylib.
                let _ = state.transfer(key, default, effects);
            }
        });
    }

    pub(crate) fn attach(
        &self,
        shared: &Arc<DylibShared>,
        resource: Box<dyn Resource>,
        find: impl FnOnce(&State) -> Option<TrackerKey>,
    ) -> Result<(), SessionError> {
        self.change(|state, effects| {
            let key = find(state);
            match key.and_then(|key| state.trackers.get_mut(&key)) {
                Some(tracker) => {
                    tracker.resources.push(resource);
                    Ok(())
                }
                None => {
                    effects.rare().resources.push(resource);
                    let dylib = Arc::clone(&shared.name);
                    Err(SessionError::TrackerDefunct { dylib })
                }
            }
        })
    }

    /// Ends a responsibility without symbols.
    pub(crate) fn forget(&self, key: Key) {
        let mut state = self.lock();
        if let Some(gone) = state.responsibilities.remove(key)
            && let Some(tracker) = state.trackers.get_mut(&gone.tracker)
        {
            tracker.responsibilities.remove(&key);
        }
    }

    /// Tells a unit which of its symbols were discarded. Drops it if none is left, starts it if it
    /// was looked up meanwhile.
    pub(crate) fn tell_discards(&self, key: Key) {
        loop {
            let (mut unit, discards, dylib) = {
                let mut state = self.lock();
                let Some(cell) = state.units.get_mut(key) else {
                    return;
                };
                let Some(unit) = cell.unit.take() else { return };
                let discards = std::mem::take(&mut cell.discards);
                let id = cell.dylib;
                let dylib = state.dylib(id).map(|d| Dylib::new(self, &d.shared));
                (unit, discards, dylib)
            };
            if let Some(dylib) = dylib {
                self.guarded(|| discards.iter().for_each(|s| unit.discard(&dylib, *s)));
            }
            let mut state = self.lock();
            let Some(cell) = state.units.get_mut(key) else {
                drop(state);
                return;
            };
            if let Some(launch) = cell.launch.take() {
                let discards = std::mem::take(&mut cell.discards);
                state.units.remove(key);
                drop(state);
                let session = self.clone();
                let launching = (unit, discards, launch);
                return self.spawn(move || session.materialize(launching));
            }
            if cell.live == 0 && cell.discards.is_empty() {
                state.units.remove(key);
                drop(state);
                return;
            }
            cell.unit = Some(unit);
            if cell.discards.is_empty() {
                return;
            }
        }
    }

    /// Materializes a unit on this thread.
    pub(crate) fn materialize(&self, (mut unit, discards, launch): Launching) {
        let responsibility = Responsibility::new(self, launch);
        self.guarded(move || {
            if !discards.is_empty() {
                let dylib = responsibility.dylib();
                for symbol in discards {
                    unit.discard(&dylib, symbol);
                }
            }
            let _making = responsibility.making();
            unit.materialize(responsibility);
        });
    }

    /// Looks init symbols up, dylib by dylib: all effects have happened when this returns.
    ///
    /// # Errors
    /// Those of [`Session::lookup`].
    pub fn run_init_symbols(&self, dylibs: &[Dylib]) -> Result<(), SessionError> {
        for dylib in dylibs {
            let mut lookup = Lookup::new([(dylib.clone(), Visibility::All)]).at(Required::Ready);
            let inits = dylib.init_symbols().into_iter();
            lookup.symbols = inits.map(|symbol| (symbol, Need::Weak)).collect();
            self.lookup(lookup)?;
        }
        Ok(())
    }

    /// The state of a symbol of a dylib; `None` if it is not defined there.
    pub fn symbol_state(&self, dylib: &Dylib, symbol: Symbol) -> Option<crate::SymbolState> {
        let dylib = self.own(dylib).ok()?;
        Some(self.lock().entry((dylib, symbol))?.state)
    }

    /// The tracker that a symbol of a dylib is under; `None` if it is not defined there.
    pub fn tracker_of(&self, dylib: &Dylib, symbol: Symbol) -> Option<TrackerKey> {
        let dylib = self.own(dylib).ok()?;
        Some(self.lock().entry((dylib, symbol))?.tracker)
    }

    /// A handle to a tracker by its key, if it is not defunct. Dropping it never transfers the
    /// tracker's definitions.
    pub fn tracker(&self, key: TrackerKey) -> Option<Tracker> {
        let shared = {
            let state = self.lock();
            let dylib = state.trackers.get(&key)?.dylib;
            Arc::clone(&state.dylib(dylib)?.shared)
        };
        Some(Tracker::new(self, &shared, key, true))
    }
}
