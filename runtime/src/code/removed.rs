//! Stubs of functions that were removed, by name.
//!
//! Callers that were compiled before reference the stub, or its slot. When the name is defined
//! again in the same dylib the new function gets that stub, so that their next call finds it. It
//! gets another stub where that would be unsound: a typed handle ([`Func`](crate::Func)) was
//! checked against the type of the old one, and a replacement that was under way when the function
//! was removed may still name it.
//!
//! Functions whose first call found a name missing are retried after new definitions: a failure is
//! not for ever.
//!
//! Invariant: a stub is in the table only from the end of its function's removal on, until
//! it is taken out for another.
//!
//! The tables have at most one entry for a stub, and so are bounded by the number of stubs. A stub
//! that nothing references is taken out for any other function ([`recycle`](super::recycle)).

use crate::code::recycle::WaitingStubs;
use crate::code::suffix::Suffixes;
use crate::code::undefined::Undefined;
use crate::error::Error;
use std::collections::{HashMap, HashSet};
use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, DylibId};

type RemovedStubs = HashMap<DylibId, HashMap<Box<str>, FunctionId>>;

/// Stubs of removed functions; see the module.
#[derive(Default)]
pub(crate) struct Removed {
    stubs: Mutex<RemovedStubs>,
    /// The IR types that functions were acquired as.
    acquired: Mutex<HashMap<FunctionId, String>>,
    /// Stubs that may become other functions'.
    pub(crate) waiting: WaitingStubs,
    /// Functions whose names were undefined.
    pub(crate) undefined: Undefined,
    /// Numbers of local names.
    pub(crate) suffixes: Suffixes,
    /// Functions that failed because a name was missing.
    failed: Mutex<HashSet<FunctionId>>,
}

impl Removed {
    /// Files the stub of a function whose removal is complete.
    pub(crate) fn file(&self, dylib: &Dylib, link_name: &str, id: FunctionId) {
        let mut stubs = lock(&self.stubs);
        let of_dylib = stubs.entry(dylib.id()).or_default();
        of_dylib.insert(link_name.into(), id);
    }

    /// Notes that a typed handle to a function exists.
    pub(crate) fn note_acquired(&self, id: FunctionId, ir_type: &str) {
        let mut acquired = lock(&self.acquired);
        acquired.entry(id).or_insert_with(|| ir_type.to_owned());
    }

    /// Takes out a stub that becomes another function's.
    pub(super) fn unfile(&self, dylib: DylibId, link_name: &str, id: FunctionId) {
        let mut stubs = lock(&self.stubs);
        if let Some(of_dylib) = stubs.get_mut(&dylib)
            && of_dylib.get(link_name) == Some(&id)
        {
            of_dylib.remove(link_name);
            if of_dylib.is_empty() {
                stubs.remove(&dylib);
            }
        }
    }

    /// Drops the type with which a function was acquired: it has no handle any more.
    pub(super) fn forget_acquired(&self, id: FunctionId) {
        lock(&self.acquired).remove(&id);
    }

    /// Drops a dylib, in which nothing is defined any more.
    pub(crate) fn forget_dylib(&self, dylib: &Dylib) {
        let gone = lock(&self.stubs).remove(&dylib.id());
        let mut acquired = lock(&self.acquired);
        for id in gone.into_iter().flat_map(HashMap::into_values) {
            acquired.remove(&id);
        }
    }

    /// Notes that the compile of a function failed, so that it is retried if that may help.
    pub(super) fn note_failed(&self, id: FunctionId, cause: &Error) {
        if cause.is_missing() {
            lock(&self.failed).insert(id);
        }
    }

    /// Takes all functions that failed because a name was missing.
    pub(super) fn take_failed(&self) -> HashSet<FunctionId> {
        std::mem::take(&mut *lock(&self.failed))
    }

    /// Whether a failure that [`Removed::note_failed`] noted was retried since.
    pub(super) fn was_noted(&self, id: FunctionId, cause: &Error) -> bool {
        cause.is_missing() && !lock(&self.failed).contains(&id)
    }

    /// Takes out the stub of a removed function.
    pub(crate) fn take(&self, dylib: &Dylib, link_name: &str) -> Option<FunctionId> {
        let mut stubs = lock(&self.stubs);
        let of_dylib = stubs.get_mut(&dylib.id())?;
        let id = of_dylib.remove(link_name)?;
        if of_dylib.is_empty() {
            stubs.remove(&dylib.id());
        }
        drop(stubs);
        self.waiting.revived(id);
        Some(id)
    }

    /// The IR type with which a function was acquired, if it has handles.
    pub(super) fn acquired_as(&self, id: FunctionId) -> Option<String> {
        let acquired = lock(&self.acquired).get(&id).cloned();
        acquired.filter(|_| self.waiting.is_leased(id))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
