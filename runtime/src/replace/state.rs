//! The state of a session's replacements: whose turn it is, and sets that can be rolled back.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Replacing::history` | a set is filed or taken | nothing |
//!
//! All are `std`'s, and are taken under a pass of the gate (`fork::gate`), so that no fork happens
//! meanwhile. A turn (`turns`) lasts longer than a pass. The child of a fork, in which no thread
//! replaces anything, begins with a free one.
//!
//! LLVM never runs under any of them: it may take its thread down.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_tiering::{EntryAddress, Kept};

use crate::code::body::Body;
use crate::fork::gate;
use crate::reclaim::Reclaim;
use std::ops::Deref;

use super::migrate::Moved;
use super::turns::{Lent, ReplacementTurn, Turns};
use crate::error::replace::ReplaceError;
use uruk_base::Level;

/// Sets that can be rolled back, by default.
const KEPT: usize = 8;

/// The state of a function before a set was committed.
pub(crate) struct PriorState {
    pub(crate) id: FunctionId,
    pub(crate) body: Body,
    /// Its code; `None` if it had never been called.
    pub(crate) kept: Option<Old>,
}

/// Code that was taken out of a slot and can be restored. It is retired when this is dropped.
pub(crate) struct Old {
    replacing: Weak<Replacing>,
    id: FunctionId,
    kept: Option<Kept>,
}

impl Old {
    pub(super) fn new(replacing: &Arc<Replacing>, id: FunctionId, kept: Kept) -> Old {
        Old {
            replacing: Arc::downgrade(replacing),
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
        if let (Some(kept), Some(replacing)) = (&self.kept, self.replacing.upgrade()) {
            let _pass = gate::enter();
            replacing.retire_version(self.id, kept.version());
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
    pub(crate) before: Vec<PriorState>,
    pub(super) manner: Manner,
    /// Variables that got new storage.
    pub(super) moved: Vec<Moved>,
}

struct History {
    sets: VecDeque<Set>,
    limit: usize,
}

/// The state of replacements; see the module.
pub(crate) struct Replacing {
    turns: Turns,
    history: Mutex<History>,
    /// The layer below.
    pub(crate) reclaim: Arc<Reclaim>,
    end: gate::End,
}

/// The layer below.
impl Deref for Replacing {
    type Target = Arc<Reclaim>;

    fn deref(&self) -> &Arc<Reclaim> {
        &self.reclaim
    }
}

/// Takes a pass: the fields take locks of the session when they are dropped.
impl Drop for Replacing {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Replacing {
    /// The replacements of a session.
    pub(crate) fn new(reclaim: Arc<Reclaim>) -> Arc<Replacing> {
        Arc::new(Replacing {
            turns: Turns::default(),
            history: Mutex::new(History {
                sets: VecDeque::new(),
                limit: KEPT,
            }),
            reclaim,
            end: gate::End::default(),
        })
    }
}

impl Replacing {
    /// Waits until no other thread replaces anything.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(crate) fn turn(&self) -> Result<ReplacementTurn<'_>, ReplaceError> {
        self.turns.take()
    }

    /// Takes the turn, if it is free.
    pub(crate) fn try_turn(&self) -> Option<ReplacementTurn<'_>> {
        self.turns.try_take()
    }

    /// Takes the turn for a first body; its owner may have lent it.
    ///
    /// # Errors
    /// [`ReplaceError::Nested`].
    pub(super) fn turn_for_first_body(&self) -> Result<ReplacementTurn<'_>, ReplaceError> {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
