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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, DylibId, SessionError};

use crate::core::{Core, Module};
use crate::error::Error;
use crate::fork::gate;

use crate::removal::recycle::Waiting;
use crate::removal::suffix::Suffixes;
use crate::removal::undefined::Undefined;

use uruk_codegen::SymbolId;

type Stubs = HashMap<DylibId, HashMap<Box<str>, FunctionId>>;

/// Stubs of removed functions; see the module.
#[derive(Default)]
pub(crate) struct Removed {
    stubs: Mutex<Stubs>,
    /// The IR types that functions were acquired as.
    acquired: Mutex<HashMap<FunctionId, String>>,
    /// Stubs that may become other functions'.
    pub(crate) waiting: Waiting,
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
    fn forget_dylib(&self, dylib: &Dylib) {
        let gone = lock(&self.stubs).remove(&dylib.id());
        let mut acquired = lock(&self.acquired);
        for id in gone.into_iter().flat_map(HashMap::into_values) {
            acquired.remove(&id);
        }
    }

    /// Notes that the compile of a function failed, so that it is retried if that may help.
    pub(crate) fn note_failed(&self, id: FunctionId, cause: &Error) {
        if cause.is_missing() {
            lock(&self.failed).insert(id);
        }
    }

    /// Whether a failure that [`Removed::note_failed`] noted was retried since.
    pub(crate) fn was_noted(&self, id: FunctionId, cause: &Error) -> bool {
        cause.is_missing() && !lock(&self.failed).contains(&id)
    }

    fn take(&self, dylib: &Dylib, link_name: &str) -> Option<FunctionId> {
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

    fn acquired_as(&self, id: FunctionId) -> Option<String> {
        let acquired = lock(&self.acquired).get(&id).cloned();
        acquired.filter(|_| self.waiting.is_leased(id))
    }
}

impl Core {
    /// Drops a dylib that was removed.
    pub(crate) fn forget_dylib(&self, dylib: &Dylib) {
        self.removed.forget_dylib(dylib);
        self.waiting.allow(dylib, false);
    }

    /// Changes the meanings of names, by `change` under a pass, and retries functions that failed
    /// because a name was missing.
    pub(crate) fn change_names<R>(
        &self,
        change: impl FnOnce() -> Result<R, SessionError>,
    ) -> Result<R, Error> {
        let _pass = gate::enter();
        let changed = change()?;
        self.retry_failed();
        Ok(changed)
    }

    /// Like [`Core::change_names`], for aliases: such a name stands for the stub of its target,
    /// also when that is replaced or removed.
    pub(crate) fn change_aliases<R>(
        &self,
        change: impl FnOnce() -> Result<R, SessionError>,
    ) -> Result<R, Error> {
        self.names.known.note_all();
        self.names.linked.note_all();
        self.change_names(change)
    }

    /// Retries failed functions after a new definition or library.
    pub(crate) fn retry_failed(&self) {
        let failed = std::mem::take(&mut *lock(&self.removed.failed));
        for id in failed {
            self.stubs.retry(id);
        }
    }

    /// A stub for a function that has no type: that of the removed function of its name, unless a
    /// typed handle to that exists, else a new one.
    pub(crate) fn stub_again(&self, dylib: &Dylib, name: &str) -> Result<FunctionId, Error> {
        if let Some(id) = self.removed.take(dylib, name)
            && self.removed.acquired_as(id).is_none()
            && self.stubs.revive(id)
        {
            return Ok(id);
        }
        self.allocate_stub()
    }

    /// A stub for a function of a module: that of the removed function of its name, if there is
    /// one, else a new one.
    pub(crate) fn stub_for(
        &self,
        module: &Arc<Module>,
        symbol: SymbolId,
        link_name: &str,
    ) -> Result<FunctionId, Error> {
        if let Some(id) = self.removed.take(&module.dylib, link_name) {
            let fits = match self.removed.acquired_as(id) {
                Some(ir_type) => *Module::type_of(module, symbol)? == *ir_type,
                None => true,
            };
            if fits && self.stubs.revive(id) {
                return Ok(id);
            }
        }
        self.allocate_stub()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
