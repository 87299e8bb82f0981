//! Constants that LLVM makes while it compiles a version, and that outlive the version.
//!
//! Their addresses may leave the function: as an argument of a tail call, in memory, as its result.
//! A holder of such an address may keep it in a register that cannot be read (`uruk_roots`), so no
//! scan shows when the constant is no longer needed. It is treated like the constants of the
//! module's text, and lives as long. It is freed when the tracker of the module is removed and the
//! last version linked against it is freed. A program must not use such an address after that, as
//! with the module's data (`Tracker::remove`).
//!
//! # Invariants
//! - The owner is the module whose function was compiled, also for constants of inlined bodies of
//!   other modules: the version is that module's, and is not called after its removal. A constant
//!   holds the data of others that it refers to.
//! - A module that replaces functions of one other module, and adds none, has no constants of its
//!   own: its functions are removed with that module's tracker, and so may their constants.
//! - Functions are recompiled often, and their constants take no more memory than the number of
//!   different ones: a constant equal to an existing one, after its addresses are filled in, shares
//!   it. Those that must have an address of their own are identified by function and name, so that
//!   all versions of a function use the same one.
//! - References are acyclic: constants hold data of images, images hold no constants. They are held
//!   by the tracker's entry of the image and by versions.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use uruk_base::allocated::of_arc;
use uruk_base::locks::{Mutex, ranks};
use uruk_codegen::{is_shared, stays_with_code};
use uruk_heap::{Heap, Pool, Sealed};
use uruk_link::{Constant, Laid, Need, Referent, Resolved};
use uruk_stubs::FunctionId;

use crate::code::body::ModuleFunction;
use crate::code::holding::{Owners, Uses};
use crate::error::Error;

/// The constants of one module.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    held: Mutex<HashMap<ConstantKey, PlacedConstant>, ranks::ConstantsHeld>,
}

/// Owner of the constants of a module, and of modules that only replaced functions of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedConstants(Arc<Mutex<Holder>>);

/// The owner of a module's constants, besides versions.
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
struct ConstantKey {
    /// Owner and name, if it must not be shared with equal ones.
    own: Option<(FunctionId, Box<str>)>,
    align: usize,
    /// The bytes, with addresses not filled in.
    bytes: Box<[u8]>,
    fields: Box<[AddressField]>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AddressField {
    offset: u64,
    kind: u32,
    addend: i64,
    /// Target address; `None` for the constant itself.
    to: Option<u64>,
}

#[derive(Debug)]
struct PlacedConstant {
    memory: Sealed,
    /// Kept for users of its addresses.
    _uses: Uses,
}

/// The constants that one link refers to.
pub(crate) struct Placed {
    /// Addresses by number.
    pub(crate) addresses: Vec<u64>,
    /// Their owner, if there are any.
    pub(crate) held: Option<Arc<Constants>>,
}

impl Drop for Constants {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held).into_inner();
        for PlacedConstant { memory, _uses } in held.into_values() {
            // SAFETY: the tracker of the module was removed, and all versions that refer to it are
            // freed; the program must not use addresses it kept.
            unsafe { memory.release() };
        }
    }
}

impl Constants {
    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        let held = self.held.lock();
        held.values().map(|held| held.memory.held()).sum()
    }
}

impl SharedConstants {
    /// Bytes that the allocator took for their table, which exists even if it is empty.
    pub(super) fn bytes_of_table(&self) -> usize {
        let table = match self.is_inherited() {
            true => 0,
            false => of_arc::<Constants>(),
        };
        of_arc::<Mutex<Holder>>() + table
    }

    /// The constants, as long as an owner exists.
    pub(crate) fn weak(&self) -> Weak<Constants> {
        Arc::downgrade(&self.get())
    }

    /// Moves the constants to the tracker of the image; `None` if one holds them already.
    pub(crate) fn hand_over(&self) -> Option<Arc<Constants>> {
        let mut holder = self.0.lock();
        let Holder::Module(constants) = &*holder else {
            return None;
        };
        let constants = Arc::clone(constants);
        *holder = Holder::Tracker(Arc::downgrade(&constants));
        Some(constants)
    }

    /// Whether it is shared with another module.
    pub(super) fn is_inherited(&self) -> bool {
        let holder = self.0.lock();
        matches!(*holder, Holder::Tracker(_))
    }

    fn get(&self) -> Arc<Constants> {
        let holder = self.0.lock();
        holder.constants()
    }
}

impl Holder {
    /// The constants; if the tracker was removed meanwhile, new ones for one version.
    fn constants(&self) -> Arc<Constants> {
        match self {
            Holder::Module(constants) => Arc::clone(constants),
            Holder::Tracker(constants) => constants.upgrade().unwrap_or_default(),
        }
    }
}

impl Constants {
    /// Finds or makes the constants of a version of `id` that lie outside of it; the version is
    /// compiled from `function`. `find` resolves names, and holds of the results are added to
    /// `uses`.
    pub(crate) fn place(
        (heap, owners): (&Heap, &Owners),
        laid: &Laid<'_>,
        function: &ModuleFunction,
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
                            owners.note_use(&resolved, heap, uses);
                            owners.note_use(&resolved, heap, &mut own_uses);
                            resolved.address
                        }
                        // Null, if the symbol may be absent; if not, the link reports it.
                        None => 0,
                    },
                });
            }
            let own = !is_shared(constant.name);
            let own = own.then(|| (id, Box::from(constant.name)));
            let key = key(own, constant, &targets);
            let make = |at| laid.fill(constant, at, &targets);
            addresses.push(constants.intern(heap, key, own_uses, make)?);
        }
        let held = Some(constants);
        Ok(Placed { addresses, held })
    }

    /// The address of the constant with that key, created if it does not exist.
    fn intern(
        &self,
        heap: &Heap,
        key: ConstantKey,
        uses: Uses,
        make: impl FnOnce(u64) -> Result<Vec<u8>, uruk_link::LinkError>,
    ) -> Result<u64, Error> {
        let mut held = self.held.lock();
        if let Some(held) = held.get(&key) {
            return Ok(held.memory.address());
        }
        let size = key.bytes.len().max(1);
        let mut draft = heap.allocate(Pool::ReadOnly, size, key.align)?;
        draft.write(0, &make(draft.address())?)?;
        let memory = draft.seal()?;
        let address = memory.address();
        let _uses = uses;
        held.insert(key, PlacedConstant { memory, _uses });
        Ok(address)
    }
}

fn key(
    own: Option<(FunctionId, Box<str>)>,
    constant: &Constant<'_>,
    targets: &[u64],
) -> ConstantKey {
    let fields = constant.references.iter().zip(targets);
    let fields = fields.map(|(reference, &target)| AddressField {
        offset: reference.offset,
        kind: reference.kind,
        addend: reference.addend,
        to: (reference.to != Referent::Itself).then_some(target),
    });
    ConstantKey {
        own,
        align: constant.align,
        bytes: constant.bytes.into(),
        fields: fields.collect(),
    }
}
