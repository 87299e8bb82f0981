//! Stubs by name: new stubs, the reuse of stubs of removed functions, and functions that are tried
//! again when names change.

use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_codegen::SymbolId;
use uruk_session::{Dylib, SessionError};

use crate::code::directory::CodeDirectory;
use crate::code::module::Module;
use crate::error::Error;
use crate::fork::gate;

impl CodeDirectory {
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

    /// Like [`CodeDirectory::change_names`], for aliases. An alias stands for the stub of its
    /// target, also after the target is replaced or removed. So all functions count as known and as
    /// linked against.
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
        for id in self.removed.take_failed() {
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

    /// A stub for a new function.
    pub(crate) fn allocate_stub(&self) -> Result<FunctionId, Error> {
        self.recycle_stubs();
        Ok(self.stubs.allocate()?)
    }

    /// Frees the stubs of removed functions that nothing references any more.
    fn recycle_stubs(&self) {
        let removed = &self.removed;
        removed.waiting.recycle(&self.names, |id, filed| {
            if let Some((dylib, name)) = filed {
                removed.unfile(*dylib, name, id);
            }
            removed.forget_acquired(id);
            // SAFETY: its names are gone, and every thread that had found one has left the library
            // since; nothing was linked against it, no address of it was given away, and no handle
            // is left. What the session noted of the id went with the function.
            unsafe { self.stubs.recycle(id) }
        });
    }
}
