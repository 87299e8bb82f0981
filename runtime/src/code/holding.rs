//! Holds the memory of an image, for as long as code or data is linked against it, and finds it by
//! address.

use crate::code::handles::Handle;
use crate::code::life::Life;
use crate::code::sizes::Sizes;
use crate::code::suffix::Suffix;
use crate::fork::gate;
use crate::host::tls;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use uruk_base::VersionId;
use uruk_base::allocated::{of_arc, of_vec};
use uruk_base::locks::RwLock;
use uruk_heap::Heap;
use uruk_link::Resolved;

/// Receives the code of images that is not used any more.
pub(crate) trait Retire: Send + Sync {
    /// Retires `version`: nothing can start its code any more.
    fn retire(&self, version: VersionId);
}

/// The parts of an image's memory that [`Holding`] keeps without using them.
pub(crate) trait HeldMemory: Send + Sync {
    /// Bytes that the allocator took for its records.
    fn bytes_beside(&self) -> usize;
}

/// The parts of a [`Holding`].
pub(crate) struct HoldingParts {
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) thread_locals: Option<u64>,
    pub(crate) code: Option<(VersionId, Arc<dyn Retire>)>,
    pub(crate) life: Arc<Life>,
    pub(crate) sizes: Sizes,
    pub(crate) handle: Option<Handle>,
    pub(crate) rest: Arc<dyn HeldMemory>,
}

/// The memory of an image's data and of its functions that have no versions. It is freed with the
/// last holder.
pub(crate) struct Holding {
    owners: Arc<Owners>,
    ranges: Vec<Range<u64>>,
    /// The module number of its thread-locals.
    thread_locals: Option<u64>,
    /// The version of its code, if it has any. That version holds the data, too.
    code: Option<(VersionId, Arc<dyn Retire>)>,
    life: Arc<Life>,
    sizes: Sizes,
    /// Dropped before its memory, which may become another handle's.
    _handle: Option<Handle>,
    rest: Arc<dyn HeldMemory>,
}

/// The thread-locals of an image, if it has any.
#[derive(Default)]
pub(crate) struct ImageThreadLocals {
    pub(crate) place: Option<tls::TemplatePlace>,
    /// Its slot, unless that is in static storage.
    pub(crate) owned: Option<tls::OwnedSlot>,
}

/// Memory of other images that code or data was linked against.
#[derive(Clone, Default)]
pub(crate) struct Uses(Vec<Arc<Holding>>);

/// The [`Holding`]s of a session, by address and by module of thread-locals.
#[derive(Default)]
pub(crate) struct Owners {
    ranges: RwLock<BTreeMap<u64, (u64, Weak<Holding>)>>,
    thread_locals: RwLock<HashMap<u64, Weak<Holding>>>,
    /// Whether some of the memory may be outside of the reservation.
    apart: AtomicBool,
}

/// Bytes of an entry of the ranges in [`Owners`]: a node of the tree has room for eleven, and half of
/// it is used where addresses go up.
const OWNER: usize = 2 * size_of::<(u64, (u64, Weak<Holding>))>();

impl Holding {
    /// The version of its code in the table of code.
    pub(crate) fn code(&self) -> Option<VersionId> {
        self.code.as_ref().map(|(version, _)| *version)
    }

    /// Bytes that the allocator took for it and its parts.
    pub(crate) fn bytes(&self) -> usize {
        let known = of_vec(&self.ranges) + self.ranges.len() * OWNER;
        let life = of_arc::<Life>() + of_arc::<Suffix>();
        of_arc::<Holding>() + self.rest.bytes_beside() + known + life
    }

    /// The sizes of its memory.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The life of its image.
    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }
}

impl Holding {
    /// The module number of its thread-locals, if it has any.
    pub(crate) fn thread_locals(&self) -> Option<u64> {
        self.thread_locals
    }

    /// Whether it has memory, or thread-locals.
    pub(crate) fn is_known(&self) -> bool {
        !self.ranges.is_empty() || self.thread_locals.is_some()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let mut owners = self.owners.ranges.write();
        for range in &self.ranges {
            owners.remove(&range.start);
        }
        drop(owners);
        if let Some(module) = self.thread_locals {
            let held = &self.owners.thread_locals;
            let mut held = held.write();
            held.remove(&module);
        }
        if let Some((version, retired)) = &self.code {
            retired.retire(*version);
        }
    }
}

impl std::fmt::Debug for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uses({})", self.0.len())
    }
}

impl Owners {
    /// Makes a holding, and enters it as the owner of its memory.
    pub(crate) fn hold(self: &Arc<Self>, parts: HoldingParts) -> Arc<Holding> {
        let holding = Arc::new(Holding {
            owners: Arc::clone(self),
            ranges: parts.ranges,
            thread_locals: parts.thread_locals,
            code: parts.code,
            life: parts.life,
            sizes: parts.sizes,
            _handle: parts.handle,
            rest: parts.rest,
        });
        self.note(&holding);
        holding
    }

    /// Notes that code or data is linked against the definition at `resolved`; `heap` is the
    /// session's memory.
    pub(crate) fn note_use(&self, resolved: &Resolved, heap: &Heap, uses: &mut Uses) {
        // Relaxed: set before the memory outside of the reservation is known by name.
        let may_own = || heap.contains(resolved.address) || self.apart.load(Ordering::Relaxed);
        let holding = match resolved.tls {
            Some((module, _)) => self.find_thread_locals(module),
            None if resolved.slot.is_some() || !may_own() => None,
            None => self.find(resolved.address),
        };
        let Some(holding) = holding else { return };
        if !uses.0.iter().any(|held| Arc::ptr_eq(held, &holding)) {
            uses.0.push(holding);
        }
    }

    /// Notes the memory and thread-locals of `holding`.
    fn note(&self, holding: &Arc<Holding>) {
        if let Some(module) = holding.thread_locals {
            let mut held = self.thread_locals.write();
            held.insert(module, Arc::downgrade(holding));
        }
        let mut owners = self.ranges.write();
        for range in &holding.ranges {
            owners.insert(range.start, (range.end, Arc::downgrade(holding)));
        }
    }

    pub(crate) fn find(&self, address: u64) -> Option<Arc<Holding>> {
        let owners = self.ranges.read();
        let (_, (end, holding)) = owners.range(..=address).next_back()?;
        // One past the end of a variable is an address of it, too.
        (address <= *end).then(|| holding.upgrade()).flatten()
    }

    /// Notes that memory outside of the reservation is held from now on.
    pub(crate) fn expect_apart(&self) {
        self.apart.store(true, Ordering::Relaxed);
    }

    /// All holdings, each once.
    pub(crate) fn all(&self) -> Vec<Arc<Holding>> {
        let owners = self.ranges.read();
        let mut all: Vec<_> = owners.values().filter_map(|(_, h)| h.upgrade()).collect();
        drop(owners);
        all.sort_unstable_by_key(Arc::as_ptr);
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }

    /// The life of the image that has these thread-locals.
    pub(crate) fn life_of_thread_locals(&self, module: u64) -> Option<Arc<Life>> {
        Some(Arc::clone(self.find_thread_locals(module)?.life()))
    }

    fn find_thread_locals(&self, module: u64) -> Option<Arc<Holding>> {
        let held = self.thread_locals.read();
        held.get(&module)?.upgrade()
    }
}
