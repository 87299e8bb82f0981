//! Holds the memory of an image, for as long as code or data is linked against it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use uruk_base::VersionId;
use uruk_base::allocated::{of_arc, of_vec};
use uruk_base::locks::RwLock;
use uruk_heap::Sealed;
use uruk_link::Resolved;
use uruk_reclaim::Fixed;
use uruk_session::Tracker;

use crate::core::Core;
use crate::error::Error;
use crate::fork::gate;
use crate::host::listed::Listed;
use crate::host::mapping::Mapping;
use crate::host::tls;
use crate::load::image::Image;
use crate::load::own::Handle;
use crate::reclaim::Notes;
use crate::removal::life::Life;
use crate::removal::suffix::Suffix;
use crate::told::holdings::Sizes;
use crate::version::blocks::{Code, Piece, Rest, split};

/// The memory of an image's data and of its functions that have no versions. It is freed with the
/// last holder.
pub(crate) struct Holding {
    notes: Arc<Notes>,
    owners: Arc<Owners>,
    ranges: Vec<Range<u64>>,
    /// The module number of its thread-locals.
    thread_locals: Option<u64>,
    /// The version of its code, if it has any; that holds the data, too.
    code: Option<VersionId>,
    life: Arc<Life>,
    sizes: Sizes,
    /// Dropped before its memory, which may become another handle's.
    _handle: Option<Handle>,
    _rest: Arc<Rest>,
}

/// The resources of an image that are held.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) memory: Vec<Sealed>,
    /// Memory that it was linked against.
    pub(crate) uses: Uses,
    /// Bytes of its data that begin as zeros, and of its unwind records.
    pub(crate) zeros: usize,
    /// Memory of variables that are placed separately.
    pub(crate) apart: Arc<[Mapping]>,
    pub(crate) unwind: usize,
    pub(crate) thread_locals: ThreadLocals,
    /// Its place in the list of images, if it has one.
    pub(crate) listed: Option<Listed>,
    /// A handle that lies in the memory.
    pub(crate) handle: Option<Handle>,
    /// Whether it has constructors or destructors.
    pub(crate) runs: bool,
}

/// The thread-locals of an image, if it has any.
#[derive(Default)]
pub(crate) struct ThreadLocals {
    pub(crate) place: Option<tls::Place>,
    /// Its slot, unless that is in static storage.
    pub(crate) owned: Option<tls::Owned>,
}

/// Memory of other images that code or data was linked against.
#[derive(Clone, Default)]
pub(crate) struct Uses(Vec<Arc<Holding>>);

/// The holder of an address of the heap, or of a module of thread-locals.
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
        self.code
    }

    /// Bytes that the allocator took for it and its parts.
    pub(crate) fn bytes(&self) -> usize {
        let known = of_vec(&self.ranges) + self.ranges.len() * OWNER;
        let life = of_arc::<Life>() + of_arc::<Suffix>();
        of_arc::<Holding>() + self._rest.bytes_beside() + known + life
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
    /// Whether it has memory, or thread-locals.
    fn is_known(&self) -> bool {
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
        if let Some(version) = self.code {
            self.notes.retire(version);
        }
    }
}

impl std::fmt::Debug for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uses({})", self.0.len())
    }
}

impl Owners {
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

impl Core {
    fn may_own(&self, address: u64) -> bool {
        self.heap.contains(address) || self.owners.apart.load(Ordering::Relaxed)
    }

    /// Notes that code or data is linked against the definition at `resolved`.
    pub(crate) fn note_use(&self, resolved: &Resolved, uses: &mut Uses) {
        let holding = match resolved.tls {
            Some((module, _)) => self.owners.find_thread_locals(module),
            None if resolved.slot.is_some() || !self.may_own(resolved.address) => None,
            None => self.owners.find(resolved.address),
        };
        let Some(holding) = holding else { return };
        if !uses.0.iter().any(|held| Arc::ptr_eq(held, &holding)) {
            uses.0.push(holding);
        }
    }

    /// Makes the holding of memory of an image. The removal of `tracker` forgets the image; until
    /// then it holds the image if it `stays`. An image of functions alone has nothing to be held or
    /// forgotten: most replacements are such, and use the tracker of the functions they replaced.
    pub(crate) fn hold(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        parts: Parts,
        stays: bool,
    ) -> Result<Arc<Holding>, Error> {
        let Parts {
            runs,
            memory,
            uses,
            zeros,
            apart,
            unwind,
            thread_locals: ThreadLocals { place, owned },
            listed,
            handle,
        } = parts;
        let sizes = Sizes::of(&memory, zeros, unwind);
        let range = |memory: &Sealed| {
            let start = memory.address();
            start..start + memory.len() as u64
        };
        let apart_from_it = apart.iter().map(Mapping::range);
        let ranges = memory.iter().map(range).chain(apart_from_it).collect();
        let (code, data) = split(memory);
        let rest = Arc::new(Rest::new(data, None, uses).of_image(owned, listed, apart));
        let holding = Arc::new(Holding {
            notes: Arc::clone(&self.reclaim.notes),
            owners: Arc::clone(&self.owners),
            ranges,
            thread_locals: place.map(|place| place.module),
            code: code.map(|memory| self.note_live(memory, &rest)),
            life: Arc::clone(&image.life),
            sizes,
            _handle: handle,
            _rest: rest,
        });
        self.owners.note(&holding);
        let hooks = image.constructors.len() + image.destructors.len() + image.ifuncs.len();
        if holding.is_known() || runs || hooks != 0 || !image.objects.is_empty() {
            self.bind_holding(tracker, image, &holding, stays)?;
        }
        Ok(holding)
    }

    /// Adds code of an image to the scanned code; returns its version in the table of code.
    fn note_live(&self, memory: Sealed, rest: &Arc<Rest>) -> VersionId {
        let version = self.tiers.versions.ids.next();
        let code = Code {
            memory,
            entry: 0,
            body_end: 0,
            text_size: 0,
            rows: Vec::new(),
            name: c"",
            unwind: 0,
            moves: None,
            rest: Arc::clone(rest),
        };
        self.reclaim.notes.live(Piece {
            function: None,
            version,
            depends: Arc::default(),
            fixed: Some(Fixed::Referenced),
            code,
        });
        version
    }

    /// Makes the removal of `tracker` release an image: its memory once its life ends, its records
    /// once no image is bound to it.
    fn bind_holding(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        holding: &Arc<Holding>,
        stays: bool,
    ) -> Result<(), Error> {
        let held = stays.then(|| Arc::clone(holding));
        let core = Arc::downgrade(self);
        tracker.attach(image.life.guard(move || {
            drop(held);
            if let Some(core) = core.upgrade() {
                core.start_reclaim();
            }
        }))?;
        let core = Arc::downgrade(self);
        let (number, thread_locals) = (image.number, holding.thread_locals);
        let life = Arc::clone(&image.life);
        tracker.attach(Box::new(move || {
            life.bonds.after(Box::new(move || {
                if let Some(core) = core.upgrade() {
                    core.forget_image(number, thread_locals);
                }
            }));
        }))?;
        Ok(())
    }

    /// Drops constructors and destructors that did not run, and thread-locals.
    fn forget_image(&self, number: u64, thread_locals: Option<u64>) {
        self.schedule().forget(number);
        self.destructors().forget(number);
        self.objects.forget_image(number);
        if let Some(module) = thread_locals {
            self.names.forget_thread_locals(module);
        }
    }
}
