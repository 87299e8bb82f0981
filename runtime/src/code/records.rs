//! Records of the versions of every function while they are in use, and counts of past ones.
//!
//! One lock for all, [`Versions::lock`]: it is held while a record is found or changed, and no
//! other lock is taken inside it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use uruk_base::allocated::{of_arc, of_map, of_slice, of_vec};
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_base::{FunctionId, Tier, VersionId};
use uruk_heap::Sealed;
use uruk_reclaim::IdMap;
use uruk_tiering::{FunctionVersions, VersionIds};

use crate::code::module::Module;
use crate::events::staying::Staying;
use crate::events::tier_stats::TierStats;
use uruk_session::Tracker;

/// The record of a version.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: VersionId,
    pub(crate) tier: Tier,
    pub(crate) entry: u64,
    /// End of the function itself; code compiled with it lies before or after.
    pub(crate) body_end: u64,
    /// Its code's range, including code that was compiled with it.
    pub(crate) code: Range<u64>,
    /// Bytes of its code.
    pub(crate) bytes: u64,
    /// Time to compile and link it.
    pub(crate) time: Duration,
    pub(crate) samples: u64,
    /// Functions from which it took bodies or facts.
    pub(crate) depends: Arc<[FunctionId]>,
    /// Functions of its module whose bodies the compile could see.
    pub(crate) bodies: Arc<[FunctionId]>,
    /// The tracker that removes it.
    pub(crate) unit: Option<BodyTracker>,
    /// Whether the program may keep addresses of its private definitions.
    pub(crate) escapes: bool,
    /// Hash of the object that it was linked from, if any.
    pub(crate) object: Option<u64>,
}

/// The place of a version.
pub(crate) struct VersionPlace {
    pub(crate) function: FunctionId,
    pub(crate) version: VersionId,
    pub(crate) entry: u64,
    pub(crate) body_end: u64,
    pub(crate) code: Range<u64>,
}

/// A function that has, or is getting, versions.
#[derive(Default)]
pub(crate) struct FunctionRecord {
    pub(crate) versions: Arc<FunctionVersions>,
    /// Compiled versions, oldest first.
    pub(crate) built: Vec<Version>,
    /// Versions that are not called any more, and that stay until the function is removed.
    pub(crate) staying: Vec<Version>,
    /// Counts of retired versions, by tier.
    pub(crate) past: Past,
}

/// Counts of retired versions.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) tiers: [TierStats; 3],
    pub(crate) samples: u64,
}

impl Past {
    fn add(&mut self, version: &Version) {
        self.samples += version.samples;
        if version.tier == Tier::Native {
            // It was never built, so no record is removed.
            return;
        }
        let tier = &mut self.tiers[version.tier.index()];
        tier.versions += 1;
        tier.time += version.time;
        tier.bytes += version.bytes;
    }
}

/// All versions of a session, by function index.
#[derive(Default)]
pub(crate) struct Versions {
    pub(crate) ids: Arc<VersionIds>,
    records: Mutex<IdMap<u32, FunctionRecord>, ranks::VersionsRecords>,
    /// Functions that keep their first version, by index, with the reason.
    fixed: Mutex<HashMap<u32, Staying>, ranks::VersionsFixed>,
    /// Native code of functions, by index. It is kept independently of versions.
    natives: Mutex<IdMap<u32, Native>>,
    numbers: Mutex<Numbers>,
}

/// Native code that is, or was, a function's version.
pub(crate) struct Native {
    /// All its ranges: including functions that are replaced only together with it.
    pub(crate) code: Vec<Range<u64>>,
    /// The address at which calls continue in it.
    pub(crate) entry: u64,
    /// The function's own range.
    pub(crate) own: Range<u64>,
    /// Code that counts a call and continues at the entry, created on request: kept for the
    /// session's life.
    pub(crate) counted: Option<Sealed>,
    /// Functions whose bodies may be in it.
    pub(crate) depends: Arc<[FunctionId]>,
    /// The module of the body when it was adopted, and the number of the last commit then: the code
    /// matches no other body.
    pub(crate) module: Weak<Module>,
    pub(crate) epoch: u64,
}

/// Numbers of units. The session never frees names, so units are named by few numbers: no more than
/// the maximal number of concurrent versions.
#[derive(Default)]
struct Numbers {
    /// Free numbers below `taken`.
    free: BinaryHeap<Reverse<usize>>,
    taken: usize,
}

impl Versions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, IdMap<u32, FunctionRecord>> {
        self.records.lock()
    }

    /// Whether `function` keeps its first version: addresses of its code, or of labels of its native
    /// code, may be in the program's memory.
    pub(crate) fn is_fixed(&self, function: FunctionId) -> bool {
        self.fixed().contains_key(&function.index())
    }

    pub(crate) fn fixed(&self) -> MutexGuard<'_, HashMap<u32, Staying>> {
        self.fixed.lock()
    }

    /// Notes that a function keeps its first version, and the reason.
    pub(crate) fn note_fixed(&self, function: FunctionId, staying: Staying) {
        self.fixed().insert(function.index(), staying);
    }

    pub(crate) fn natives(&self) -> MutexGuard<'_, IdMap<u32, Native>> {
        self.natives.lock()
    }

    /// Takes the least number that no unit has.
    pub(crate) fn take_number(&self) -> usize {
        let mut numbers = self.numbers.lock();
        numbers.free.pop().map_or_else(
            || {
                numbers.taken += 1;
                numbers.taken - 1
            },
            |Reverse(number)| number,
        )
    }

    /// Frees the number of a removed unit.
    pub(crate) fn give_number(&self, number: usize) {
        let mut numbers = self.numbers.lock();
        numbers.free.push(Reverse(number));
    }

    /// Takes a version out of the records.
    pub(crate) fn take(&self, function: FunctionId, version: VersionId) -> Option<Version> {
        let mut records = self.lock();
        let record = records.get_mut(&function.index())?;
        let at = record.built.iter().position(|v| v.id == version)?;
        let taken = record.built.remove(at);
        record.past.add(&taken);
        Some(taken)
    }

    /// Keeps a version that was taken out until `function` is removed; returns it if that has
    /// happened.
    pub(crate) fn keep(&self, function: FunctionId, version: Version) -> Option<Version> {
        let mut records = self.lock();
        match records.get_mut(&function.index()) {
            Some(record) => {
                record.staying.push(version);
                None
            }
            None => Some(version),
        }
    }

    /// Sets the new places of moved versions.
    pub(crate) fn set_places(&self, places: impl IntoIterator<Item = VersionPlace>) {
        let mut records = self.lock();
        for place in places {
            let record = records.get_mut(&place.function.index());
            let built = record.map(|record| record.built.iter_mut());
            let found = built.and_then(|mut built| built.find(|v| v.id == place.version));
            if let Some(found) = found {
                (found.entry, found.body_end, found.code) =
                    (place.entry, place.body_end, place.code);
            }
        }
    }

    /// Applies `each` to the version that calls of each function reach, with the function's index.
    pub(crate) fn all_published<T>(&self, each: impl Fn(u32, &Version) -> Option<T>) -> Vec<T> {
        let records = self.lock();
        let all = records.iter().filter_map(|(&index, record)| {
            let published = record.versions.published()?;
            let version = record.built.iter().find(|v| v.id == published.id)?;
            each(index, version)
        });
        all.collect()
    }

    /// Samples by version.
    pub(crate) fn heat(&self) -> Vec<(uruk_reclaim::VersionId, u64)> {
        let records = self.lock();
        let built = records.values().flat_map(|record| &record.built);
        built
            .filter(|version| version.samples > 0)
            .map(|version| (uruk_reclaim::VersionId(version.id.0), version.samples))
            .collect()
    }

    /// The versions of those of several functions that have any.
    pub(crate) fn of_all(
        &self,
        functions: impl IntoIterator<Item = Option<FunctionId>>,
    ) -> Vec<Option<Arc<FunctionVersions>>> {
        let records = self.lock();
        let of = |id: FunctionId| Some(Arc::clone(&records.get(&id.index())?.versions));
        functions.into_iter().map(|id| of(id?)).collect()
    }

    /// The tier of the version that calls of `function` reach; `None` if it was never compiled.
    pub(crate) fn tier(&self, function: FunctionId) -> Option<Tier> {
        let records = self.lock();
        let record = records.get(&function.index())?;
        let published = record.versions.published()?;
        let mut built = record.built.iter();
        built.find(|v| v.id == published.id).map(|v| v.tier)
    }

    /// Hash of the object that a version was linked from, if any.
    pub(crate) fn object_of(&self, function: FunctionId, version: VersionId) -> Option<u64> {
        let records = self.lock();
        let mut built = records.get(&function.index())?.built.iter();
        built.find(|v| v.id == version)?.object
    }

    /// Bytes that the allocator took for the records of versions.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.lock();
        let versions = records.values().map(|record| {
            let all = record.built.iter().chain(&record.staying);
            let lists = all.map(|version| {
                // Empty lists share one, which is counted nowhere.
                let depends = of_slice(&version.depends) + of_slice(&version.bodies);
                let unit = version.unit.as_ref().map_or(0, |_| of_arc::<BodyTracker>());
                depends + unit
            });
            of_arc::<FunctionVersions>()
                + record.versions.bytes()
                + of_vec(&record.built)
                + of_vec(&record.staying)
                + lists.sum::<usize>()
        });
        of_map(&records) + versions.sum::<usize>()
    }

    /// Functions whose bodies may be inlined in the version that calls of `function` reach.
    pub(crate) fn bodies(&self, function: FunctionId) -> Arc<[FunctionId]> {
        let records = self.lock();
        let record = records.get(&function.index());
        let published = record.and_then(|record| {
            let published = record.versions.published()?;
            record.built.iter().find(|v| v.id == published.id)
        });
        published.map_or_else(Arc::default, |version| Arc::clone(&version.bodies))
    }

    /// The versions of `function`, for callers that read them or withdraw one: a function without
    /// versions, or removed meanwhile, gets no record.
    pub(crate) fn seen(&self, function: FunctionId) -> Arc<FunctionVersions> {
        let records = self.lock();
        let record = records.get(&function.index());
        record.map_or_else(Arc::default, |record| Arc::clone(&record.versions))
    }

    /// Whether a function has, or is getting, versions. A removed function has no record any more
    /// when the controller removes it, under its lock.
    pub(crate) fn has(&self, function: FunctionId) -> bool {
        self.lock().contains_key(&function.index())
    }

    /// Drops the record of a removed function that has no version.
    pub(crate) fn forget_idle(&self, function: FunctionId) {
        let mut records = self.lock();
        // Other threads have no handle of the record: they would get one under this lock.
        let idle = records.get(&function.index()).is_some_and(|record| {
            Arc::strong_count(&record.versions) == 1
                && record.built.is_empty()
                && record.staying.is_empty()
        });
        if idle {
            records.remove(&function.index());
        }
    }

    /// The versions of `function`, for callers that add to them.
    pub(crate) fn of(&self, function: FunctionId) -> Arc<FunctionVersions> {
        Arc::clone(&self.lock().entry(function.index()).or_default().versions)
    }

    /// Counts samples in a version; returns its tier, if it is known.
    pub(crate) fn add_samples(
        &self,
        id: FunctionId,
        version: VersionId,
        samples: u32,
    ) -> Option<Tier> {
        let mut records = self.lock();
        let mut built = records.get_mut(&id.index())?.built.iter_mut();
        let found = built.find(|v| v.id == version)?;
        found.samples += u64::from(samples);
        Some(found.tier)
    }

    /// Samples in versions of a function at a tier.
    pub(crate) fn samples_at(&self, id: FunctionId, tier: Tier) -> u64 {
        let records = self.lock();
        let built = records
            .get(&id.index())
            .into_iter()
            .flat_map(|it| &it.built);
        built
            .filter(|it| it.tier == tier)
            .map(|it| it.samples)
            .sum()
    }

    /// Whether calls reach that version of a function.
    pub(crate) fn runs(&self, function: FunctionId, version: VersionId) -> bool {
        let published = self.seen(function).published();
        published.is_some_and(|published| published.id == version)
    }
}

/// The tracker that removes the unit of a version.
#[derive(Debug)]
pub(crate) struct BodyTracker {
    pub(crate) tracker: Tracker,
    pub(crate) number: usize,
}
