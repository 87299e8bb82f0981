//! Attributes a session's memory to owners: the walk behind [`MemoryReport`].
//!
//! | memory | found by | owner |
//! |---|---|---|
//! | versions | the table of code | their function's |
//! | images: data, code of object files | [`Owners`](crate::code::holding::Owners) | their tracker's |
//! | constants that LLVM made, bitcode | [`Modules`] | their module's image's |
//! | stubs | the table of functions | their function's |
//! | names, symbols, units, trackers | [`Session::bytes`](uruk_session::Session::bytes) | no dylib's |
//! | records of modules, images, code and versions | the walks over these | no dylib's |
//!
//! The heap counts the memory handed out, by pool. Memory without an owner above is the runtime's
//! own or just being linked; pages that are held beyond the memory handed out are unused. So
//! everything is in some row, and in one only.
//!
//! Locks are taken one after the other. A report that is made during compiles may put memory that
//! changes meanwhile into a wrong row; its sums are the same total nevertheless. The report of a
//! session at rest is exact.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uruk_base::{FunctionId, Tier, VersionId};
use uruk_heap::PAGE;

use crate::code::body::Body;
use crate::code::constants::Constants;
use crate::code::holding::HeldMemory;
use crate::code::life::Life;
use crate::code::locals::CountedLocals;
use crate::code::static_names::static_bytes;
use crate::events::memory::{Ledger, MemoryOwner, MemoryPurpose, MemoryReport};
use crate::session::Session;

/// Bytes of a stub and its slot.
const STUB: u64 = 32;

/// A block of the table of code.
struct Block {
    function: Option<FunctionId>,
    version: VersionId,
    /// Whether calls of its version reach it.
    live: bool,
    bytes: u64,
    unwind: u64,
    /// Bytes of its records; with the first block of a version also those of the version's.
    records: usize,
    /// Bytes of its data, with the first block of a version.
    data: u64,
    /// The constants that it refers to, and their bytes.
    constants: Option<(*const Constants, u64)>,
}

/// Owners of images, modules and functions.
struct ImageOwners {
    images: HashMap<u64, MemoryOwner>,
}

impl ImageOwners {
    fn of(&self, life: &Arc<Life>) -> Option<&MemoryOwner> {
        let own = self.images.get(&life.number());
        own.or_else(|| self.images.get(&life.root().number()))
    }
}

/// The result of the walk, and its part in the heap.
struct MemoryWalk {
    ledger: Ledger,
    found: u64,
    /// Bytes that the allocator took for records of modules, images and code.
    records: u64,
    constants: HashSet<*const Constants>,
}

impl MemoryWalk {
    fn add(
        &mut self,
        owner: Option<&MemoryOwner>,
        tier: Option<Tier>,
        purpose: MemoryPurpose,
        bytes: u64,
    ) {
        self.found += bytes;
        self.ledger.add(owner, tier, purpose, bytes);
    }

    /// Adds memory of an owner; without an owner it waits to be freed.
    fn add_owned(&mut self, owner: Option<&MemoryOwner>, purpose: MemoryPurpose, bytes: u64) {
        let purpose = owner.map_or(MemoryPurpose::Waiting, |_| purpose);
        self.add(owner, None, purpose, bytes);
    }
}

impl Session {
    /// The uses of the session's memory. Under a pass.
    pub(crate) fn memory_report(&self) -> MemoryReport {
        let owners = self.owners_of_images();
        let mut walk = MemoryWalk {
            ledger: Ledger::default(),
            found: 0,
            records: 0,
            constants: HashSet::new(),
        };
        let bitcode = self.walk_modules(&owners, &mut walk);
        self.walk_images(&owners, &mut walk);
        self.walk_code(&owners, &mut walk);
        let MemoryWalk {
            mut ledger,
            found,
            records,
            ..
        } = walk;
        let stubs = self.walk_stubs(&owners, &mut ledger);
        let heap = self.heap.stats();
        let code = heap.code.sum();
        let (constants, data) = (heap.read_only, heap.read_write);
        let used = (code.used + constants.used + data.used) as u64;
        let retired = code.retired + constants.retired + data.retired;
        let pages = code.resident + constants.touched.next_multiple_of(PAGE);
        let pages = pages + data.used + data.retired + data.wasted;
        let unused = pages.saturating_sub(retired) as u64;
        let unused = unused.saturating_sub(used.max(found));
        let stub_pages = 2 * (heap.stub_pages * PAGE) as u64;
        for (purpose, bytes) in [
            (MemoryPurpose::Waiting, retired as u64),
            (MemoryPurpose::Runtime, used.saturating_sub(found)),
            (MemoryPurpose::Unused, unused),
            (MemoryPurpose::Stubs, stub_pages.saturating_sub(stubs)),
        ] {
            ledger.add(None, None, purpose, bytes);
        }
        let tables = self.names.session().bytes() + static_bytes();
        let tables = tables + self.bytes_of_versions() + self.bytes_of_functions();
        let tables = tables as u64 + records;
        ledger.add(None, None, MemoryPurpose::Tables, tables);
        let rows = ledger.rows();
        let total: u64 = rows.iter().map(|row| row.bytes).sum();
        MemoryReport {
            reserved: total - bitcode - tables,
            reservation: self.heap.base()..self.heap.base() + self.heap.size() as u64,
            rows,
            resident: resident(),
        }
    }

    fn owners_of_images(&self) -> ImageOwners {
        let session = self.names.session();
        let mut names = HashMap::new();
        let images = self.names.lives.trackers().into_iter();
        let images = images.filter_map(|(life, (dylib, tracker))| {
            let name = names.entry(dylib).or_insert_with(|| {
                let dylib = session.dylib_by_id(dylib)?;
                Some(Arc::<str>::from(dylib.name()))
            });
            let name = Arc::clone(name.as_ref()?);
            let owner = MemoryOwner {
                dylib,
                name,
                tracker,
            };
            Some((life, owner))
        });
        let images = images.collect();
        ImageOwners { images }
    }

    /// Adds bitcode and constants of modules; returns bytes of bitcode.
    fn walk_modules(&self, owners: &ImageOwners, walk: &mut MemoryWalk) -> u64 {
        let (all, bytes) = self.modules.all();
        walk.records += bytes as u64;
        let mut bitcode = 0;
        let mut counted = CountedLocals::default();
        for (module, life, constants) in all {
            let owner = life.and_then(|life| owners.of(&life));
            if let Some(module) = module {
                let bytes = module.readers.bitcode().bytes().len() as u64;
                bitcode += bytes;
                walk.records += module.bytes(&mut counted) as u64;
                let purpose = owner.map_or(MemoryPurpose::Waiting, |_| MemoryPurpose::Bitcode);
                walk.ledger.add(owner, None, purpose, bytes);
            }
            if let Some(constants) = constants
                && walk.constants.insert(Arc::as_ptr(&constants))
            {
                walk.add_owned(owner, MemoryPurpose::ReadOnly, constants.bytes() as u64);
            }
        }
        bitcode
    }

    fn walk_images(&self, owners: &ImageOwners, walk: &mut MemoryWalk) {
        for holding in self.owners.all() {
            let sizes = holding.sizes();
            walk.records += holding.bytes() as u64;
            let owner = owners.of(holding.life());
            // Records lie with the constants, if there are any.
            let in_code = match sizes.read_only {
                0 => sizes.unwind.min(sizes.code),
                _ => 0,
            };
            let in_constants = sizes.unwind.min(sizes.read_only);
            let zeros = sizes.zeros.min(sizes.read_write);
            for (purpose, bytes) in [
                (MemoryPurpose::Code, sizes.code - in_code),
                (MemoryPurpose::ReadOnly, sizes.read_only - in_constants),
                (MemoryPurpose::Unwind, in_code + in_constants),
                (MemoryPurpose::Data, sizes.read_write - zeros),
                (MemoryPurpose::Zeroed, zeros),
            ] {
                walk.add_owned(owner, purpose, bytes as u64);
            }
        }
    }

    fn walk_code(&self, owners: &ImageOwners, walk: &mut MemoryWalk) {
        let blocks = self.blocks_of_code();
        let tiers = self.tiers_of_versions();
        for block in blocks {
            walk.records += block.records as u64;
            let of_image = block.function.is_none();
            if of_image && block.live {
                // Counted with its image.
                continue;
            }
            let (tier, published) = tiers.get(&block.version).copied().unzip();
            let life = block.function.and_then(|id| self.life_of(id));
            let owner = life.as_ref().and_then(|life| owners.of(life));
            let runs = block.live && published == Some(true) && owner.is_some();
            let purposes = match runs {
                true => [
                    MemoryPurpose::Code,
                    MemoryPurpose::Unwind,
                    MemoryPurpose::Data,
                ],
                false => [MemoryPurpose::Waiting; 3],
            };
            let unwind = block.unwind.min(block.bytes);
            let bytes = [block.bytes - unwind, unwind, block.data];
            for (purpose, bytes) in purposes.into_iter().zip(bytes) {
                walk.add(owner, tier, purpose, bytes);
            }
            if let Some((constants, bytes)) = block.constants
                && walk.constants.insert(constants)
            {
                walk.add(owner, tier, MemoryPurpose::Waiting, bytes);
            }
        }
    }

    /// The tier of each filed version, and whether calls reach it.
    fn tiers_of_versions(&self) -> HashMap<VersionId, (Tier, bool)> {
        let records = self.versions.lock();
        let versions = records.values().flat_map(|record| {
            let published = record.versions.published().map(|version| version.id);
            let built = record.built.iter();
            built.map(move |v| (v.id, (v.tier, published == Some(v.id))))
        });
        versions.collect()
    }

    /// Bytes that the allocator took for records of versions and of their heat.
    fn bytes_of_versions(&self) -> usize {
        let heat = {
            let control = self.tiers.control();
            control.controller.bytes() + control.watched.bytes()
        };
        self.versions.bytes() + heat
    }

    /// Adds stubs of functions; returns their bytes.
    fn walk_stubs(&self, owners: &ImageOwners, ledger: &mut Ledger) -> u64 {
        let bodies: Vec<(FunctionId, Body)> = {
            let all = self.functions_where(|_| true).into_iter();
            all.filter_map(|id| Some((id, self.body(id)?))).collect()
        };
        for (id, body) in &bodies {
            let life = self.life_of(*id);
            let owner = life.as_ref().and_then(|life| owners.of(life)).cloned();
            let owner = owner.or_else(|| match body {
                Body::Unit(unit) => Some(MemoryOwner {
                    dylib: unit.dylib.id(),
                    name: unit.dylib.name().into(),
                    tracker: self.names.session().tracker_of(&unit.dylib, unit.own)?,
                }),
                _ => None,
            });
            ledger.add(owner.as_ref(), None, MemoryPurpose::Stubs, STUB);
        }
        bodies.len() as u64 * STUB
    }
}

impl Session {
    /// All blocks of the table of code, with the holdings of their versions.
    fn blocks_of_code(&self) -> Vec<Block> {
        let mut seen = HashSet::new();
        self.of_all_code(|id, live, view| {
            let shape = view.shape;
            let rest = shape.rest();
            let first = seen.insert(Arc::as_ptr(rest));
            // The data of an image is counted with it, as long as it has an owner.
            let counted = first && (shape.function.is_some() || live != Some(id));
            Block {
                function: shape.function,
                version: shape.version,
                live: live == Some(id),
                bytes: view.memory.held() as u64,
                unwind: shape.unwind as u64,
                records: view.bytes_of_tables() + if counted { rest.bytes_beside() } else { 0 },
                data: if counted { rest.bytes() as u64 } else { 0 },
                constants: rest
                    .constants()
                    .map(|held| (Arc::as_ptr(held), held.bytes() as u64)),
            }
        })
    }
}

/// Resident memory of the process.
fn resident() -> Option<u64> {
    let text = uruk_files::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE as u64)
}
