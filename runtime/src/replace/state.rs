//! What a session knows about replacements: what is stale, what can be rolled back.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Replacing::stale` (read) | a version is looked at and published | a function's own, its slot |
//! | `Replacing::stale` (write) | a set is committed: bodies, plans, versions | the function table, plans, `Versions`, functions' own |
//! | `Replacing::modules`, `moved_names` | an entry is made or looked at | nothing |
//! | `Replacing::history` | a set is filed or taken | nothing |
//!
//! All are `std`'s, and are taken under a pass of the gate (`fork::gate`), so that no fork
//! happens meanwhile. A turn (`turns`) lasts longer than a pass; the child of a fork, in
//! which nobody replaces anything, begins with a free one.
//!
//! LLVM never runs under any of them: it may take its thread down.
//!
//! # Why
//! One module offers a function's body. After a commit the old one's import is `replaced`:
//! neither its body nor its attributes are used. A version that was begun before and depends on
//! a member is stale (`replace::state`): it is looked at under the lock that commits exclude,
//! right before its store.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

use uruk_base::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_session::{Dylib, DylibId, SessionError, Tracker};
use uruk_tiering::{EntryAddress, Kept};

use crate::api::tracker::Tracked;
use crate::core::{Body, Core, Module};
use crate::fork::gate;

use super::Level;
use super::error::ReplaceError;
use super::migrate::Moved;
use super::turns::{Lent, Turn, Turns};

/// Sets that can be rolled back, unless the session is told otherwise.
const KEPT: usize = 8;

/// Which functions were replaced when.
#[derive(Default)]
pub(crate) struct Stale {
    /// Number of the latest commit that replaced a function, by function index.
    replaced: HashMap<u32, u64>,
}

/// What a function was before a set was committed.
pub(crate) struct Before {
    pub(crate) id: FunctionId,
    pub(crate) body: Body,
    /// Its code; `None` if it had never been called.
    pub(crate) kept: Option<Old>,
}

/// Code that was taken out of a slot and can come back. It is retired with this.
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

    /// Keeps the code: it goes back into the slot.
    pub(super) fn into_kept(mut self) -> Option<Kept> {
        self.kept.take()
    }

    pub(super) fn version(&self) -> Option<VersionId> {
        self.kept.as_ref().map(Kept::version)
    }

    /// As [`Replacing::moved`].
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

/// How a set was exchanged, and goes back unless another way is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    pub(super) level: Level,
    /// Threads in loops change with it.
    pub(super) osr: bool,
}

/// A committed set, and the way back.
pub(crate) struct Set {
    pub(crate) number: u64,
    pub(crate) before: Vec<Before>,
    pub(super) manner: Manner,
    /// Variables that got other storage.
    pub(super) moved: Vec<Moved>,
    /// By which the data and the names that came with the set can be removed, once its
    /// functions are gone. While it is held, they stay.
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
    /// Modules other than those whose functions the function table leads to matter by what
    /// they define besides: data, and copies for the optimizer.
    modules: Mutex<Vec<Weak<Module>>>,
    /// Link names of variables that got other storage, and those they have there.
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

/// As long as it lives, nothing is replaced.
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

/// As long as it lives, nothing else is published or replaced.
pub(crate) struct Committing<'a> {
    stale: RwLockWriteGuard<'a, Stale>,
    epoch: &'a AtomicU64,
}

impl Committing<'_> {
    /// Makes everything stale that was begun before and depends on `ids`; the number of
    /// this commit. To be called after the new bodies and plans are in place: who reads
    /// the new number reads those.
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
    /// Waits until nobody else replaces anything.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(crate) fn turn(&self) -> Result<Turn<'_>, ReplaceError> {
        self.turns.take()
    }

    /// A turn, if it is free.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        self.turns.try_take()
    }

    /// The turn of a first body, which may be one that its owner lends.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(super) fn turn_for_first_body(&self) -> Result<Turn<'_>, ReplaceError> {
        self.turns.take_for_first_body()
    }

    /// Lends the turn, which the caller's replacement has, to first bodies.
    pub(super) fn lend_turn(&self) -> Lent<'_> {
        self.turns.lend()
    }

    /// Whether a first body waits for a turn.
    pub(super) fn is_turn_wanted(&self) -> bool {
        self.turns.is_wanted()
    }

    /// Lends the turn, which the caller's replacement has, to first bodies that wait for it.
    pub(super) fn give_way(&self, deadline: Instant) {
        self.turns.give_way(deadline);
    }

    /// Whether a rollback may bring back the body that file `file` has for a function. Under a turn:
    /// a set that is being committed or rolled back is not in the history.
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

    /// Keeps commits away.
    pub(crate) fn publish(&self) -> Publishing<'_> {
        Publishing(self.stale.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, unless a set is being committed: for callers that hold locks which a commit takes.
    pub(crate) fn try_publish(&self) -> Option<Publishing<'_>> {
        self.stale.try_read().map(Publishing)
    }

    /// Keeps publications away.
    pub(crate) fn commit(&self) -> Committing<'_> {
        Committing {
            stale: self.stale.write().unwrap_or_else(PoisonError::into_inner),
            epoch: &self.epoch,
        }
    }

    /// Notes the modules of an image that was bound. `tracker` keeps those with data: the types
    /// of variables are asked for as long as their names are there.
    ///
    /// # Errors
    /// The tracker was removed.
    pub(crate) fn register(
        &self,
        tracker: &Tracker,
        modules: &[(usize, Arc<Module>)],
    ) -> Result<(), SessionError> {
        let mut held = lock(&self.modules);
        // Those that went are forgotten each time as many have come as there are.
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

    /// The modules of `dylib` that are still of use, latest first.
    pub(crate) fn modules(&self, dylib: &Dylib) -> Vec<Arc<Module>> {
        let held = lock(&self.modules);
        let live = held.iter().rev().filter_map(Weak::upgrade);
        live.filter(|module| module.dylib.id() == dylib.id())
            .collect()
    }

    /// True if no more than one module is of use.
    pub(crate) fn is_one_module(&self) -> bool {
        let held = lock(&self.modules);
        let live = held.iter().filter(|module| module.strong_count() != 0);
        live.take(2).count() < 2
    }

    /// All modules that are still of use.
    pub(super) fn all_modules(&self) -> Vec<Arc<Module>> {
        lock(&self.modules)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(super) fn moved_names(&self) -> MutexGuard<'_, MovedNames> {
        lock(&self.moved_names)
    }

    /// Sets that are kept to be rolled back.
    pub(crate) fn keep_sets(&self, limit: usize) {
        lock(&self.history).limit = limit;
    }

    /// Files a set that was committed; the oldest is given up if there are too many.
    pub(crate) fn file(&self, set: Set) {
        let mut history = lock(&self.history);
        history.sets.push_back(set);
        let surplus = history.sets.len().saturating_sub(history.limit);
        let given_up: Vec<Set> = history.sets.drain(..surplus).collect();
        drop(history);
        // Their code is retired, which takes locks.
        drop(given_up);
    }

    /// Forgets the ways back of a function that was removed. True if nobody replaces anything
    /// now: else a set that was taken may still name it.
    pub(crate) fn forget(&self, id: FunctionId) -> bool {
        let mut forgotten = Vec::new();
        for set in &mut lock(&self.history).sets {
            forgotten.extend(set.before.extract_if(.., |before| before.id == id));
        }
        // Their code is retired, which takes locks.
        drop(forgotten);
        // After the sets: who takes one has the turn by then.
        !self.turns.is_taken()
    }

    /// Says that the code of a version that is kept for a rollback lies elsewhere. False, and
    /// nothing changed, if none is kept at `from`: it is being rolled back, for example.
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

    /// The latest set, if there is one, and it is number `wanted` or that does not matter.
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

    /// In the child of a fork: nobody replaces anything.
    pub(crate) fn after_fork_child(&self) {
        self.turns.after_fork_child();
    }
}

/// True if somebody may ask for the type of what the module defines.
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
