//! Stubs of functions that were removed, by name.
//!
//! Callers that were compiled before know the stub, or its slot. When the name is defined
//! again in the same dylib the new function gets that stub, so that their next call finds
//! it. Only where that would be unsound it gets another: a typed handle
//! ([`Func`](crate::Func)) was checked against the type of the old one, and a replacement that
//! was under way when the function was removed may still name it.
//!
//! Functions whose first call found a name missing are tried again once something was defined:
//! a failure is not for ever.
//!
//! Invariant: a stub is in the table only from the end of its function's removal on, until
//! it is taken out for another.
//!
//! The tables have an entry for a stub at most, and so are bounded by the stubs there are. A stub that
//! nothing knows is taken out for any other function ([`recycle`](super::recycle)).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use uruk_base::FunctionId;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, DylibId, SessionError};

use crate::api::error::Error;
use crate::core::{Core, Module};
use crate::fork::gate;

use crate::removal::recycle::Waiting;
use crate::removal::suffix::Suffixes;
use crate::removal::undefined::Undefined;

use uruk_codegen::SymbolId;

type Stubs = HashMap<DylibId, HashMap<Box<str>, FunctionId>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Removed {
    stubs: Mutex<Stubs>,
    /// The IR types that functions were acquired as.
    acquired: Mutex<HashMap<FunctionId, String>>,
    /// Stubs that may be other functions' next.
    pub(crate) waiting: Waiting,
    /// Functions whose names were undefined.
    pub(crate) undefined: Undefined,
    /// Numbers of local names.
    pub(crate) suffixes: Suffixes,
    /// Functions that failed for want of a name.
    failed: Mutex<HashSet<FunctionId>>,
}

impl Removed {
    /// Files the stub of a function whose removal is over.
    pub(crate) fn file(&self, dylib: &Dylib, link_name: &str, id: FunctionId) {
        let mut stubs = lock(&self.stubs);
        let of_dylib = stubs.entry(dylib.id()).or_default();
        of_dylib.insert(link_name.into(), id);
    }

    /// Says that somebody holds a typed handle to a function.
    pub(crate) fn note_acquired(&self, id: FunctionId, ir_type: &str) {
        let mut acquired = lock(&self.acquired);
        acquired.entry(id).or_insert_with(|| ir_type.to_owned());
    }

    /// Takes out a stub that is to be another function's.
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

    /// Forgets as what a function was acquired that has no handle any more.
    pub(super) fn forget_acquired(&self, id: FunctionId) {
        lock(&self.acquired).remove(&id);
    }

    /// Forgets a dylib, in which nothing is defined any more.
    fn forget_dylib(&self, dylib: &Dylib) {
        let gone = lock(&self.stubs).remove(&dylib.id());
        let mut acquired = lock(&self.acquired);
        for id in gone.into_iter().flat_map(HashMap::into_values) {
            acquired.remove(&id);
        }
    }

    /// Says that the compile of a function failed, so that another is tried if it is worth it.
    pub(crate) fn note_failed(&self, id: FunctionId, cause: &Error) {
        if cause.is_missing() {
            lock(&self.failed).insert(id);
        }
    }

    /// Whether what [`Removed::note_failed`] noted was seen to since.
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
    /// Forgets a dylib that was removed.
    pub(crate) fn forget_dylib(&self, dylib: &Dylib) {
        self.removed.forget_dylib(dylib);
        self.waiting.allow(dylib, false);
    }

    /// Has names be searched in one more library of the process.
    pub(crate) fn add_library(&self, name: &str) -> Result<(), Error> {
        let process = self.process.write();
        process.unwrap_or_else(PoisonError::into_inner).add(name)?;
        self.retry_failed();
        Ok(())
    }

    /// Changes what names mean, as `change` does under a pass, and has what failed for want of one
    /// be tried again.
    pub(crate) fn change_names<R>(
        &self,
        change: impl FnOnce() -> Result<R, SessionError>,
    ) -> Result<R, Error> {
        let _pass = gate::enter();
        let changed = change()?;
        self.retry_failed();
        Ok(changed)
    }

    /// As [`Core::change_names`], of names for others: such a name means the stub of what it stands
    /// for, whatever becomes of that.
    pub(crate) fn change_aliases<R>(
        &self,
        change: impl FnOnce() -> Result<R, SessionError>,
    ) -> Result<R, Error> {
        self.names.known.note_all();
        self.names.linked.note_all();
        self.change_names(change)
    }

    /// Something was defined, or is searched from now on.
    pub(crate) fn retry_failed(&self) {
        for id in std::mem::take(&mut *lock(&self.removed.failed)) {
            self.stubs.retry(id);
        }
    }

    /// A stub for a function that has no type: that of the function of its name that was removed,
    /// unless somebody holds a typed handle to that, else a new one.
    pub(crate) fn stub_again(&self, dylib: &Dylib, name: &str) -> Result<FunctionId, Error> {
        if let Some(id) = self.removed.take(dylib, name)
            && self.removed.acquired_as(id).is_none()
            && self.stubs.revive(id)
        {
            return Ok(id);
        }
        self.allocate_stub()
    }

    /// A stub for a function of a module: that of the function of its name that was removed,
    /// if there is one, else a new one.
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
