//! The modules of all images that were bound, and new link names of their variables.

use std::sync::{Arc, Weak};

use uruk_base::locks::Mutex;
use uruk_session::{Dylib, DylibId, SessionError, Tracker};

use crate::code::module::Module;
use crate::code::moved::MovedNames;

/// The modules of all images that were bound. Some are not reached through the function table: they
/// define only data, or copies of functions for the optimizer. Each lock is held while an entry is
/// made or read, and no other lock is taken inside it.
#[derive(Default)]
pub(crate) struct BoundModules {
    modules: Mutex<Vec<Weak<Module>>>,
    /// Link names of variables that got new storage.
    moved_names: Mutex<MovedNames>,
}

impl BoundModules {
    /// Moves the variable with the link name `old` to the storage of `new`.
    pub(crate) fn relocate(&self, dylib: DylibId, old: &str, new: &str) {
        self.moved_names.lock().relocate(dylib, old, new);
    }

    /// Ends the move to the storage of `new`, if there is one.
    pub(crate) fn move_back(&self, dylib: DylibId, old: &str, new: &str) {
        self.moved_names.lock().move_back(dylib, old, new);
    }

    /// The link name of the storage that a variable has now, if it was moved.
    pub(super) fn moved_name(&self, dylib: DylibId, link_name: &str) -> Option<Box<str>> {
        self.moved_names.lock().current(dylib, link_name)
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
        let mut held = self.modules.lock();
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
        let held = self.modules.lock();
        let live = held.iter().rev().filter_map(Weak::upgrade);
        live.filter(|module| module.dylib.id() == dylib.id())
            .collect()
    }

    /// True if at most one module is in use.
    pub(crate) fn is_one_module(&self) -> bool {
        let held = self.modules.lock();
        let live = held.iter().filter(|module| module.strong_count() != 0);
        live.take(2).count() < 2
    }

    /// All modules that are still in use.
    pub(crate) fn all(&self) -> Vec<Arc<Module>> {
        self.modules
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
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
