//! Constants that LLVM makes while it compiles a version, and that outlive the version.
//!
//! Their addresses may leave the function: as an argument of a call that is the last thing
//! the function does, in memory, as its result. Whoever has such an address may keep it in a
//! register that nobody can read (`uruk_roots`), so no scan tells when the constant is no
//! longer needed. It is a constant of the module as good as those that the module's text
//! has, and lives as long: until the tracker of the module is removed and the last version
//! is freed that was linked against it. What a program does with such an address after that
//! is its own affair, as with the module's data (`Tracker::remove`).
//!
//! # Invariants
//! - The owner is the module whose function was compiled, also of what came with bodies of
//!   other modules: the version is that module's, and is not called when it is gone. A
//!   constant holds the data of others that it refers to.
//! - A module that replaces functions of one other module, and adds none, has no constants of
//!   its own: its functions go with that module's tracker, and so may their constants.
//! - Functions are compiled again and again, and what is made for them takes no more memory
//!   than there are different constants: one that is equal to one that is there, after its
//!   addresses are filled in, is that one. Those that must have an address of their own are
//!   told apart by function and name, so that all versions of a function mean the same one.
//! - Nothing refers back: constants hold data of images, images hold no constants. They are
//!   held by the tracker's entry of the image and by versions.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use uruk_base::allocated::of_arc;
use uruk_base::locks::Mutex;
use uruk_codegen::{is_shared, stays_with_code};
use uruk_heap::{Pool, Sealed};
use uruk_link::{Constant, Laid, Need, Referent, Resolved};
use uruk_session::Tracker;
use uruk_stubs::FunctionId;

use crate::api::error::Error;
use crate::core::{Core, Function};
use crate::load::image::Image;
use crate::removal::Uses;

/// The constants of one module.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    held: Mutex<HashMap<Key, Held>>,
}

/// Where the constants of a module are found, and of those that replaced functions of it alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Holder>>);

/// Who holds the constants of a module, besides versions.
#[derive(Debug)]
enum Holder {
    /// The module, until its image is linked.
    Module(Arc<Constants>),
    /// The tracker of its image, until it is removed.
    Tracker(Weak<Constants>),
}

impl Default for Holder {
    fn default() -> Holder {
        Holder::Module(Arc::default())
    }
}

/// Constants with equal keys are one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Whose it is, and its name there, if it must not be one with equal ones.
    own: Option<(FunctionId, Box<str>)>,
    align: usize,
    /// With its addresses not filled in.
    bytes: Box<[u8]>,
    fields: Box<[Field]>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Field {
    offset: u64,
    kind: u32,
    addend: i64,
    /// Where it refers to; `None` for the constant itself.
    to: Option<u64>,
}

#[derive(Debug)]
struct Held {
    memory: Sealed,
    /// Kept for those who follow its addresses.
    _uses: Uses,
}

/// The constants that one link refers to.
pub(crate) struct Placed {
    /// By number.
    pub(crate) addresses: Vec<u64>,
    /// Who holds them, if there are any.
    pub(crate) held: Option<Arc<Constants>>,
}

impl Drop for Constants {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held).into_inner();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        for Held { memory, _uses } in held.into_values() {
            // SAFETY: the tracker of the module was removed, and all versions are freed that
            // refer to it; what addresses a program kept is its own affair.
            unsafe { memory.release() };
        }
    }
}

impl Constants {
    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.values().map(|held| held.memory.held()).sum()
    }
}

impl Shared {
    /// Bytes that the allocator took for the table of them, which is there if there are none, too.
    pub(crate) fn bytes_of_table(&self) -> usize {
        let table = match self.is_inherited() {
            true => 0,
            false => of_arc::<Constants>(),
        };
        of_arc::<Mutex<Holder>>() + table
    }

    /// The constants, as long as somebody holds them.
    pub(crate) fn weak(&self) -> Weak<Constants> {
        Arc::downgrade(&self.get())
    }

    /// The constants, for the tracker of the image to hold from now on; `None` if one does.
    fn hand_over(&self) -> Option<Arc<Constants>> {
        let mut holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Holder::Module(constants) = &*holder else {
            return None;
        };
        let constants = Arc::clone(constants);
        *holder = Holder::Tracker(Arc::downgrade(&constants));
        Some(constants)
    }

    /// Whether it is that of another module, too.
    pub(crate) fn is_inherited(&self) -> bool {
        let holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*holder, Holder::Tracker(_))
    }

    fn get(&self) -> Arc<Constants> {
        let holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        holder.constants()
    }
}

impl Holder {
    /// The constants; where the tracker was removed meanwhile, some for one version.
    fn constants(&self) -> Arc<Constants> {
        match self {
            Holder::Module(constants) => Arc::clone(constants),
            Holder::Tracker(constants) => constants.upgrade().unwrap_or_default(),
        }
    }
}

impl Core {
    /// Has `tracker` hold the constants of an image's functions until it is removed.
    pub(crate) fn keep_constants(tracker: &Tracker, image: &Image) -> Result<(), Error> {
        let modules = image.modules.iter();
        let held = modules.filter_map(|(_, module)| module.constants.hand_over());
        let held: Vec<Arc<Constants>> = held.collect();
        if !held.is_empty() {
            tracker.attach(image.life.guard(move || drop(held)))?;
        }
        Ok(())
    }

    /// Finds or makes the constants that lie apart from a version of `id`, which is compiled
    /// from `function`. `find` resolves names; what they mean goes into `uses`, too.
    pub(crate) fn place_constants(
        &self,
        laid: &Laid<'_>,
        function: &Function,
        id: FunctionId,
        find: impl Fn(&str, Need) -> Option<Resolved>,
        uses: &mut Uses,
    ) -> Result<Placed, Error> {
        debug_assert!(
            laid.constants_inside()
                .all(|(section, table)| stays_with_code(section, table)),
            "constants of {:?} that may be read when its code is gone: {:?}",
            function.name,
            laid.constants_inside().collect::<Vec<_>>()
        );
        let mut addresses = Vec::with_capacity(laid.constants().len());
        if laid.constants().is_empty() {
            let held = None;
            return Ok(Placed { addresses, held });
        }
        let constants = function.module.constants.get();
        for constant in laid.constants() {
            let mut own_uses = Uses::default();
            let mut targets = Vec::with_capacity(constant.references.len());
            for reference in &constant.references {
                targets.push(match reference.to {
                    Referent::Itself => 0,
                    Referent::Constant(number) => addresses[number],
                    Referent::External { name, need } => match find(name, need) {
                        Some(resolved) => {
                            self.note_use(&resolved, uses);
                            self.note_use(&resolved, &mut own_uses);
                            resolved.address
                        }
                        // Null, if it may be absent; if not, the link will say so.
                        None => 0,
                    },
                });
            }
            let own = !is_shared(constant.name);
            let own = own.then(|| (id, Box::from(constant.name)));
            let key = key(own, constant, &targets);
            let make = |at| laid.fill(constant, at, &targets);
            addresses.push(self.intern(&constants, key, own_uses, make)?);
        }
        let held = Some(constants);
        Ok(Placed { addresses, held })
    }

    /// The address of the constant with that key, made if it is not there.
    fn intern(
        &self,
        constants: &Constants,
        key: Key,
        uses: Uses,
        make: impl FnOnce(u64) -> Result<Vec<u8>, uruk_link::LinkError>,
    ) -> Result<u64, Error> {
        let mut held = constants
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = held.get(&key) {
            return Ok(held.memory.address());
        }
        let size = key.bytes.len().max(1);
        let mut draft = self.heap.allocate(Pool::ReadOnly, size, key.align)?;
        draft.write(0, &make(draft.address())?)?;
        let memory = draft.seal()?;
        let address = memory.address();
        let _uses = uses;
        held.insert(key, Held { memory, _uses });
        Ok(address)
    }
}

fn key(own: Option<(FunctionId, Box<str>)>, constant: &Constant<'_>, targets: &[u64]) -> Key {
    let fields = constant.references.iter().zip(targets);
    let fields = fields.map(|(reference, &target)| Field {
        offset: reference.offset,
        kind: reference.kind,
        addend: reference.addend,
        to: (reference.to != Referent::Itself).then_some(target),
    });
    Key {
        own,
        align: constant.align,
        bytes: constant.bytes.into(),
        fields: fields.collect(),
    }
}
