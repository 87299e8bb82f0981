//! The modules of a session, and the sizes of images.

use crate::code::constants::Constants;
use crate::code::life::Life;
use crate::code::module::Module;
use std::sync::{Arc, Weak};
use uruk_base::allocated::of_vec;
use uruk_base::locks::{Mutex, ranks};

/// A module, the life of its image, and its constants, as far as they exist.
pub(super) type KnownModule = (
    Option<Arc<Module>>,
    Option<Arc<Life>>,
    Option<Arc<Constants>>,
);

/// The modules of a session.
#[derive(Default)]
pub(crate) struct Modules(Mutex<Vec<Read>, ranks::Modules>);

/// A module, with the parts that outlive it as long as its image or versions exist.
struct Read {
    module: Weak<Module>,
    life: Weak<Life>,
    constants: Weak<Constants>,
}

impl Modules {
    /// The modules that still exist.
    pub(crate) fn live(&self) -> Vec<Arc<Module>> {
        let all = self.0.lock();
        all.iter()
            .filter_map(|read| read.module.upgrade())
            .collect()
    }

    /// All modules, with what outlives them, and the bytes that the allocator took for the list.
    pub(crate) fn all(&self) -> (Vec<KnownModule>, usize) {
        let held = self.0.lock();
        let read = held.iter().map(|read| {
            let module = read.module.upgrade();
            (module, read.life.upgrade(), read.constants.upgrade())
        });
        (read.collect(), of_vec(&held))
    }

    /// Notes a module that was read.
    pub(crate) fn note(&self, module: &Arc<Module>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain_mut(Read::is_there);
            let len = all.len();
            all.reserve(len + 1);
        }
        all.push(Read {
            module: Arc::downgrade(module),
            life: Arc::downgrade(&module.life),
            // Inherited constants are counted with the first module that had them.
            constants: match module.constants.is_inherited() {
                true => Weak::new(),
                false => module.constants.weak(),
            },
        });
    }
}

impl Read {
    /// Whether anything of it exists. Frees the entry's memory of a module that is gone.
    fn is_there(&mut self) -> bool {
        if self.module.strong_count() == 0 {
            self.module = Weak::new();
        }
        self.module.strong_count() + self.constants.strong_count() != 0
    }
}
