//! The state of a session's replacements: stale functions, sets that can be rolled back.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Replacing::stale` (read) | a version is checked and published | a function's own, its slot |
//! | `Replacing::stale` (write) | a set is committed: bodies, plans, versions | the function table, plans, `Versions`, functions' own |
//! | `Replacing::modules`, `moved_names` | an entry is made or read | nothing |
//! | `Replacing::history` | a set is filed or taken | nothing |
//!
//! All are `std`'s, and are taken under a pass of the gate (`fork::gate`), so that no fork happens
//! meanwhile. A turn (`turns`) lasts longer than a pass. The child of a fork, in which no thread
//! replaces anything, begins with a free one.
//!
//! LLVM never runs under any of them: it may take its thread down.
//!
//! # Why
//! One module offers a function's body. After a commit the old one's import is `replaced`: neither
//! its body nor its attributes are used. A version is stale if its compile began before and it
//! depends on a member. That is checked right before its store, under the lock that commits
//! exclude.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use uruk_base::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_session::{Dylib, DylibId, SessionError, Tracker};
use uruk_tiering::{EntryAddress, Kept};

use crate::core::{Body, Core, Module};
use crate::fork::gate;
use crate::removal::tracked::Tracked;

use super::migrate::Moved;
use super::turns::{Lent, Turn, Turns};
use crate::error::replace::ReplaceError;
use uruk_base::Level;

/// Sets that can be rolled back, by default.
const KEPT: usize = 8;

/// The latest commit of each replaced function.
#[derive(Default)]
pub(crate) struct Stale {
    /// Number of the latest commit that replaced a function, by function index.
    replaced: HashMap<u32, u64>,
}

/// The state of a function before a set was committed.
pub(crate) struct Before {
    pub(crate) id: FunctionId,
    pub(crate) body: Body,
    /// Its code; `None` if it had never been called.
    pub(crate) kept: Option<Old>,
}

/// Code that was taken out of a slot and can be restored. It is retired when this is dropped.
pub(crate) struct Old {
    core: Weak<Core>,
    id: FunctionId,
    kept: Option<Kept>,
}

impl Old {
    pub(super) fn new(core: &Arc<Core>, id: FunctionId, kept: Kept) -> Old {
        Old {
            core: Arc::downgrade(core),
            id,
            kept: Some(kept),
        }
    }

    /// Takes the code, to put it back into the slot.
    pub(super) fn into_kept(mut self) -> Option<Kept> {
        self.kept.take()
    }

    pub(super) fn version(&self) -> Option<VersionId> {
        self.kept.as_ref().map(Kept::version)
    }

    /// Updates the entry, as [`Replacing::moved`] does.
    fn moved(&mut self, version: VersionId, from: EntryAddress, to: EntryAddress) -> bool {
        let Some(kept) = &mut self.kept else {
            return false;
        };
        let here = kept.version() == version && kept.view().entry == Some(from);
        if here {
            kept.moved(to);
        }
        here
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        if let (Some(kept), Some(core)) = (&self.kept, self.core.upgrade()) {
            let _pass = gate::enter();
            core.retire_version(self.id, kept.version());
        }
    }
}

/// How a set was exchanged; a rollback uses the same by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    pub(super) level: Level,
    /// Threads in loops continue in the new body.
    pub(super) osr: bool,
}

/// A committed set, and the data to roll it back.
pub(crate) struct Set {
    pub(crate) number: u64,
    pub(crate) before: Vec<Before>,
    pub(super) manner: Manner,
    /// Variables that got new storage.
    pub(super) moved: Vec<Moved>,
    /// Removes the data and the names that came with the set, once its functions are removed. While
    /// it is held, they stay.
    pub(crate) _tracker: Option<Tracked>,
}

type MovedNames = HashMap<(DylibId, Box<str>), Box<str>>;

struct History {
    sets: VecDeque<Set>,
    limit: usize,
}

/// The state of replacements; see the module.
pub(crate) struct Replacing {
    turns: Turns,
    /// Number of the latest commit. Changes under `stale` only.
    epoch: AtomicU64,
    stale: RwLock<Stale>,
    /// Modules, also those to whose functions the function table does not lead: they define data,
    /// and copies for the optimizer.
    modules: Mutex<Vec<Weak<Module>>>,
    /// Link names of variables that got new storage, and their new link names.
    moved_names: Mutex<MovedNames>,
    history: Mutex<History>,
}

impl Default for Replacing {
    fn default() -> Replacing {
        Replacing {
            turns: Turns::default(),
            epoch: AtomicU64::new(0),
            stale: RwLock::default(),
            modules: Mutex::default(),
            moved_names: Mutex::default(),
            history: Mutex::new(History {
                sets: VecDeque::new(),
                limit: KEPT,
            }),
        }
    }
}

/// Excludes replacements while it lives.
pub(crate) struct Publishing<'a>(RwLockReadGuard<'a, Stale>);

impl Publishing<'_> {
    /// True unless one of `depends` was replaced after commit number `epoch`.
    pub(crate) fn is_fresh(&self, epoch: u64, depends: &[FunctionId]) -> bool {
        self.0.is_fresh(epoch, depends)
    }
}

impl Stale {
    fn is_fresh(&self, epoch: u64, depends: &[FunctionId]) -> bool {
        let after = |id: &FunctionId| self.replaced.get(&id.index()).is_some_and(|&at| at > epoch);
        self.replaced.is_empty() || !depends.iter().any(after)
    }
}

/// Excludes other publications and replacements while it lives.
pub(crate) struct Committing<'a> {
    stale: RwLockWriteGuard<'a, Stale>,
    epoch: &'a AtomicU64,
}

impl Committing<'_> {
    /// Makes compiles stale that began before and depend on `ids`; returns the number of this
    /// commit. To be called after the new bodies and plans are in place: a reader of the new number
    /// reads these.
    pub(crate) fn outdate(&mut self, ids: impl Iterator<Item = FunctionId>) -> u64 {
        let number = self.epoch.load(Ordering::Relaxed) + 1;
        self.stale
            .replaced
            .extend(ids.map(|id| (id.index(), number)));
        // Partner: the acquire in `Replacing::epoch`.
        self.epoch.store(number, Ordering::Release);
        number
    }
}

impl Replacing {
    /// Waits until no other thread replaces anything.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(crate) fn turn(&self) -> Result<Turn<'_>, ReplaceError> {
        self.turns.take()
    }

    /// Takes the turn, if it is free.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        self.turns.try_take()
    }

    /// Takes the turn for a first body; its owner may have lent it.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(super) fn turn_for_first_body(&self) -> Result<Turn<'_>, ReplaceError> {
        self.turns.take_for_first_body()
    }

    /// Lends the turn of the caller's replacement to first bodies.
    pub(super) fn lend_turn(&self) -> Lent<'_> {
        self.turns.lend()
    }

    /// Whether a first body waits for a turn.
    pub(super) fn is_turn_wanted(&self) -> bool {
        self.turns.is_wanted()
    }

    /// Lends the turn of the caller's replacement to first bodies that wait for it.
    pub(super) fn give_way(&self, deadline: Instant) {
        self.turns.give_way(deadline);
    }

    /// Whether a rollback may bring back the body that file `file` has for a function. To be called
    /// under a turn: a set that is being committed or rolled back is not in the history.
    pub(crate) fn keeps(&self, id: FunctionId, file: &str) -> bool {
        let history = lock(&self.history);
        let mut before = history.sets.iter().flat_map(|set| &set.before);
        before.any(|before| before.id == id && before.body.is_of_file(file))
    }

    /// Number of the latest commit whose bodies and plans a compile that begins now sees.
    pub(crate) fn epoch(&self) -> u64 {
        // Partner: the release in `Committing::outdate`.
        self.epoch.load(Ordering::Acquire)
    }

    /// Excludes commits.
    pub(crate) fn publish(&self) -> Publishing<'_> {
        Publishing(self.stale.read())
    }

    /// The same, unless a set is being committed: for callers that hold locks which a commit takes.
    pub(crate) fn try_publish(&self) -> Option<Publishing<'_>> {
        self.stale.try_read().map(Publishing)
    }

    /// Excludes publications.
    pub(crate) fn commit(&self) -> Committing<'_> {
        Committing {
            stale: self.stale.write(),
            epoch: &self.epoch,
        }
    }

    /// Notes the modules of an image that was bound. `tracker` keeps those with data: the types of
    /// variables are read as long as their names are defined.
    ///
    /// # Errors
    /// The tracker was removed.
    pub(crate) fn register(
        &self,
        tracker: &Tracker,
        modules: &[(usize, Arc<Module>)],
    ) -> Result<(), SessionError> {
        let mut held = lock(&self.modules);
        // Dead entries are removed each time the list would have to grow.
        if held.len() + modules.len() > held.capacity() {
            held.retain(|module| module.strong_count() != 0);
            let room = held.len() + modules.len();
            held.reserve(room);
        }
        held.extend(modules.iter().map(|(_, module)| Arc::downgrade(module)));
        drop(held);
        let with_data = modules.iter().filter(|(_, module)| has_data(module));
        let with_data: Vec<_> = with_data.map(|(_, module)| Arc::clone(module)).collect();
        match with_data.first().map(|module| Arc::clone(&module.life)) {
            None => Ok(()),
            Some(life) => tracker.attach(life.guard(move || drop(with_data))),
        }
    }

    /// The modules of `dylib` that are still in use, latest first.
    pub(crate) fn modules(&self, dylib: &Dylib) -> Vec<Arc<Module>> {
        let held = lock(&self.modules);
        let live = held.iter().rev().filter_map(Weak::upgrade);
        live.filter(|module| module.dylib.id() == dylib.id())
            .collect()
    }

    /// True if at most one module is in use.
    pub(crate) fn is_one_module(&self) -> bool {
        let held = lock(&self.modules);
        let live = held.iter().filter(|module| module.strong_count() != 0);
        live.take(2).count() < 2
    }

    /// All modules that are still in use.
    pub(super) fn all_modules(&self) -> Vec<Arc<Module>> {
        lock(&self.modules)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(super) fn moved_names(&self) -> MutexGuard<'_, MovedNames> {
        lock(&self.moved_names)
    }

    /// Sets how many sets are kept for rollback.
    pub(crate) fn keep_sets(&self, limit: usize) {
        lock(&self.history).limit = limit;
    }

    /// Files a committed set; the oldest is dropped if there are too many.
    pub(crate) fn file(&self, set: Set) {
        let mut history = lock(&self.history);
        history.sets.push_back(set);
        let surplus = history.sets.len().saturating_sub(history.limit);
        let given_up: Vec<Set> = history.sets.drain(..surplus).collect();
        drop(history);
        // Their code is retired, which takes locks.
        drop(given_up);
    }

    /// Drops the saved bodies of a function that was removed. True if no thread replaces anything
    /// now: else a set that was taken may still name it.
    pub(crate) fn forget(&self, id: FunctionId) -> bool {
        let mut forgotten = Vec::new();
        for set in &mut lock(&self.history).sets {
            forgotten.extend(set.before.extract_if(.., |before| before.id == id));
        }
        // Their code is retired, which takes locks.
        drop(forgotten);
        // Checked after the sets: a thread that takes one has the turn by then.
        !self.turns.is_taken()
    }

    /// Updates the address of a version that is kept for a rollback. False, without a change, if
    /// none is kept at `from`: for example while it is being rolled back.
    pub(crate) fn moved(
        &self,
        id: FunctionId,
        version: VersionId,
        from: EntryAddress,
        to: EntryAddress,
    ) -> bool {
        let mut history = lock(&self.history);
        let kept = history.sets.iter_mut().flat_map(|set| &mut set.before);
        let mut olds = kept
            .filter(|before| before.id == id)
            .filter_map(|before| before.kept.as_mut());
        olds.any(|old| old.moved(version, from, to))
    }

    /// Takes the latest set, if there is one, and it is number `wanted` or none is wanted.
    pub(crate) fn take(&self, wanted: Option<u64>) -> Option<Set> {
        let mut history = lock(&self.history);
        let latest = history.sets.back()?.number;
        if wanted.is_some_and(|wanted| wanted != latest) {
            return None;
        }
        history.sets.pop_back()
    }

    /// Whether a set is kept whose rollback waits until old code is left.
    pub(super) fn may_wait(&self) -> bool {
        let history = lock(&self.history);
        let mut sets = history.sets.iter();
        sets.any(|set| set.manner.level != Level::Immediate)
    }

    /// The number of the latest set that can be rolled back.
    pub(crate) fn latest(&self) -> Option<u64> {
        lock(&self.history).sets.back().map(|set| set.number)
    }

    /// In the child of a fork, no thread replaces anything.
    pub(crate) fn after_fork_child(&self) {
        self.turns.after_fork_child();
    }
}

/// True if the type of a variable of the module may be needed.
fn has_data(module: &Module) -> bool {
    use uruk_codegen::{Kind, Linkage};
    let plan = module.plan();
    let mut symbols = module.readers.summary().symbols.iter().zip(&plan.imports);
    symbols.any(|(info, import)| {
        let local_constant = info.linkage == Linkage::Local && info.constant;
        matches!(info.kind, Kind::Data | Kind::ThreadLocal) && import.defined && !local_constant
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
