//! The versions of every function: compiling one, publishing it, and what is known of
//! it afterwards.
//!
//! Who may store into a slot is decided by `uruk_tiering`'s [`FunctionVersions`], under
//! the lock of that function. Superseded versions keep their memory and their trackers.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Versions::records` | a record is found or changed | nothing |
//! | a function's own | its slot is stored | the slot |

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uruk_codegen::{Compile, Labels};
use uruk_reclaim::Fixed;
use uruk_stubs::FunctionId;
use uruk_tiering::{
    Entry, Facts, FunctionVersions, Late, Publication, Purpose, Ticket, Tier, VersionError,
    VersionId, VersionIds,
};

use crate::core::Core;
use crate::error::Error;
use crate::event::Event;
use crate::guided::Words;
use crate::materialize::{BodyTracker, Built};
use crate::stats::TierStats;

/// What is kept of a version.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: VersionId,
    pub(crate) tier: Tier,
    pub(crate) entry: u64,
    /// End of the function itself; what was compiled along lies before or after.
    pub(crate) body_end: u64,
    /// Bytes of its code.
    pub(crate) bytes: u64,
    /// Time to compile and link it.
    pub(crate) time: Duration,
    pub(crate) samples: u64,
    /// What it is removed by.
    pub(crate) unit: Option<BodyTracker>,
}

/// A function that has, or is getting, versions.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) versions: Arc<FunctionVersions>,
    /// Those that were compiled, oldest first.
    pub(crate) built: Vec<Version>,
    /// By number: whether a unit of the session has it. The session keeps names for
    /// ever, so units of one function use the same few.
    numbers: Vec<bool>,
    /// Those that are retired, by tier.
    pub(crate) past: Past,
}

/// Counts of versions that are retired.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) tiers: [TierStats; 3],
    pub(crate) samples: u64,
}

impl Past {
    fn add(&mut self, version: &Version) {
        let tier = &mut self.tiers[usize::from(version.tier.number()) - 1];
        tier.versions += 1;
        tier.time += version.time;
        tier.bytes += version.bytes;
        self.samples += version.samples;
    }
}

/// All versions of a session, by function index.
#[derive(Default)]
pub(crate) struct Versions {
    pub(crate) ids: Arc<VersionIds>,
    records: Mutex<HashMap<u32, Record>>,
    /// Functions that keep their first version, by index.
    fixed: Mutex<HashSet<u32>>,
}

/// A version that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) function: FunctionId,
    pub(crate) version: VersionId,
    pub(crate) tier: Tier,
    pub(crate) purpose: Purpose,
}

/// What a compile came to.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) version: VersionId,
    pub(crate) entry: u64,
    pub(crate) compiling: Duration,
    pub(crate) linking: Duration,
    pub(crate) facts: Facts,
    /// Whether the code counts its entries and back edges.
    pub(crate) counts: bool,
    /// What its probes count in.
    pub(crate) words: Option<Words>,
    pub(crate) publication: Publication,
}

impl Versions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u32, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `function` keeps its first version: the addresses of its labels may be in
    /// the program's memory.
    pub(crate) fn is_fixed(&self, function: FunctionId) -> bool {
        self.fixed().contains(&function.index())
    }

    fn fixed(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.fixed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least number no unit of `function` has.
    pub(crate) fn take_number(&self, function: FunctionId) -> usize {
        let mut records = self.lock();
        let numbers = &mut records.entry(function.index()).or_default().numbers;
        let free = numbers.iter().position(|taken| !taken);
        let number = free.unwrap_or(numbers.len());
        numbers.resize(numbers.len().max(number + 1), false);
        numbers[number] = true;
        number
    }

    /// Says that the unit with `number` is gone.
    pub(crate) fn give_number(&self, function: FunctionId, number: usize) {
        if let Some(record) = self.lock().get_mut(&function.index()) {
            // The function may have been removed, and its numbers with it.
            if let Some(taken) = record.numbers.get_mut(number) {
                *taken = false;
            }
        }
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

    /// A version lies elsewhere now.
    pub(crate) fn set_place(
        &self,
        function: FunctionId,
        version: VersionId,
        entry: u64,
        body_end: u64,
    ) {
        let mut records = self.lock();
        let record = records.get_mut(&function.index());
        let built = record.map(|record| record.built.iter_mut());
        if let Some(found) = built.and_then(|mut built| built.find(|v| v.id == version)) {
            (found.entry, found.body_end) = (entry, body_end);
        }
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

    /// The versions of `function`.
    pub(crate) fn of(&self, function: FunctionId) -> Arc<FunctionVersions> {
        Arc::clone(&self.lock().entry(function.index()).or_default().versions)
    }
}

impl Versions {
    /// Counts samples that fell into a version; its tier, if it is known.
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
}

impl Versions {
    /// Whether calls reach what was asked for by `request`.
    pub(crate) fn runs(&self, request: &Request) -> bool {
        let published = self.of(request.function).published();
        published.is_some_and(|version| version.id == request.version)
    }

    /// Where the code of a version lies: entry and end.
    pub(crate) fn code_of(&self, version: u64) -> Option<(u64, u64)> {
        let records = self.lock();
        let mut built = records.values().flat_map(|record| &record.built);
        let found = built.find(|v| v.id.0 == version)?;
        Some((found.entry, found.body_end))
    }
}

impl Core {
    /// Compiles a version, links it, and publishes it unless that is too late.
    ///
    /// # Errors
    /// The compile's own; what was published before runs on.
    pub(crate) fn make(
        self: &Arc<Self>,
        request: Request,
        queued: Option<Duration>,
    ) -> Result<Made, Error> {
        let mut how = self.tiers.how(request.tier);
        if request.tier == Tier::Guided {
            how = self.guide(request.function, how);
        }
        self.make_as(request, how, queued)
    }

    /// As [`Core::make`], with settings of its own.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn make_as(
        self: &Arc<Self>,
        request: Request,
        how: Compile,
        queued: Option<Duration>,
    ) -> Result<Made, Error> {
        let versions = self.tiers.versions.of(request.function);
        if request.purpose == Purpose::Change && self.tiers.versions.is_fixed(request.function) {
            self.tell_dropped(request);
            return Err(Error::Version {
                message: String::from(
                    "the function keeps its first version: addresses of its labels may be stored",
                ),
                late: true,
            });
        }
        let ticket = versions
            .request(request.version, request.tier, request.purpose)
            .map_err(refused)?;
        self.make_requested(request, how, &versions, ticket, queued)
            .inspect_err(|cause| {
                versions.fail(request.version);
                match cause {
                    Error::Version { late: true, .. } => self.tell_dropped(request),
                    cause => self.tell_failed(request, cause),
                }
            })
    }

    fn make_requested(
        self: &Arc<Self>,
        request: Request,
        how: Compile,
        versions: &FunctionVersions,
        ticket: Ticket,
        queued: Option<Duration>,
    ) -> Result<Made, Error> {
        let Request {
            function: id,
            version,
            ..
        } = request;
        versions.start(ticket).map_err(refused)?;
        let started = self.events.now();
        let mut request = request;
        let mut built = match self.build_version(id, how.clone()) {
            Err(Error::Heap(cause)) if self.reclaim_for_more(&cause) => {
                self.build_version(id, how)?
            }
            built => built?,
        };
        if built.compiled.labels == Labels::Escape && request.purpose == Purpose::First {
            self.tiers.versions.fixed().insert(id.index());
            let best = self.tiers.only(request.tier);
            if best != request.tier {
                // There is no second chance.
                let first =
                    std::mem::replace(&mut built, self.build_version(id, self.tiers.how(best))?);
                self.discard(id, first);
                request.tier = best;
            }
        }
        let tier = request.tier;
        if let Err(cause) = versions.ready(ticket, Entry(built.entry)) {
            self.discard(id, built);
            return Err(refused(cause));
        }
        let first = request.purpose == Purpose::First;
        self.counters.add_compile(first, &built);
        self.events.tell(|| Event::Compiled {
            id,
            function: self.name_of(id),
            version: version.0,
            tier,
            worker: worker_name(),
            queued,
            started,
            compiling: built.compiling,
            linking: built.linking,
            instructions: built.compiled.instructions,
            bytes: built.bytes,
        });
        let mut made = Made {
            version,
            entry: built.entry,
            compiling: built.compiling,
            linking: built.linking,
            facts: Facts {
                instructions: built.compiled.instructions,
                loops: built.compiled.loops,
                nested: built.compiled.nested,
                entry_point: self.tiers.is_entry_point(id),
            },
            counts: built.compiled.counts,
            words: built.words.clone(),
            publication: Publication::Dropped(Late::GivenUp),
        };
        // Known before it can run, so that the first sample in it, and whoever asks once
        // it runs, finds it.
        self.tiers
            .sampling
            .add_code(built.code.range(), id, version);
        self.keep(request, built);
        made.publication = versions
            .publish(ticket, |entry| self.stubs.publish(id, entry.0))
            .inspect_err(|_| self.retire_version(id, version))
            .map_err(refused)?;
        self.tell_publication(request, &made.publication);
        match &made.publication {
            Publication::Published { retired, released } => {
                if let Some(released) = released {
                    self.retire_version(request.function, *released);
                }
                if retired.is_some() {
                    let notes = &self.reclaim.notes;
                    notes.superseded(request.function, request.version);
                    self.start_reclaim();
                }
            }
            Publication::Dropped(_) => self.retire_version(request.function, request.version),
            _ => {}
        }
        Ok(made)
    }

    /// Files a version that was compiled.
    fn keep(&self, request: Request, built: Built) {
        let fixed = match built.compiled.labels {
            Labels::Escape => Some(Fixed::Labels),
            _ => built.code.moves.is_none().then_some(Fixed::Referenced),
        };
        let notes = &self.reclaim.notes;
        notes.live(Some(request.function), request.version, built.code, fixed);
        let mut records = self.tiers.versions.lock();
        let record = records.entry(request.function.index()).or_default();
        record.built.push(Version {
            id: request.version,
            tier: request.tier,
            entry: built.entry,
            body_end: built.body_end,
            bytes: built.bytes,
            time: built.compiling + built.linking,
            samples: 0,
            unit: built.unit,
        });
    }

    /// Says what became of a version.
    fn tell_publication(&self, request: Request, publication: &Publication) {
        let Publication::Published { retired, .. } = publication else {
            return self.tell_dropped(request);
        };
        let id = request.function;
        self.events.tell(|| Event::Published {
            id,
            function: self.name_of(id),
            version: request.version.0,
            tier: request.tier,
            replaced: retired.and_then(|before| Some((before.0, self.tier_of(id, before)?))),
            at: self.events.now(),
        });
    }

    /// Compiles the first version of `id` and publishes it, unless better code is there
    /// by then; the entry that calls go to.
    pub(crate) fn materialize(
        self: &Arc<Self>,
        id: FunctionId,
        version: VersionId,
    ) -> Result<u64, Error> {
        let mut tier = self.tiers.first();
        if self.tiers.is_entry_point(id) {
            // Nobody comes back to see a better version: it is worth looking first.
            tier = self.tiers.start_tier(id, &self.facts(id)?);
        }
        let first = Request {
            function: id,
            version,
            tier,
            purpose: Purpose::First,
        };
        match (self.make(first, None), self.stubs.entry(id)) {
            (Ok(made), entry) => {
                self.tiers.on_compiled(self.events.now(), id, tier, &made);
                Ok(entry.unwrap_or(made.entry))
            }
            // Whoever came first has published code; it will do.
            (Err(Error::Version { late: true, .. }), Some(entry)) => Ok(entry),
            (Err(cause), _) => Err(cause),
        }
    }

    /// What is known of a function before it is compiled.
    fn facts(&self, id: FunctionId) -> Result<Facts, Error> {
        let function = self.function(id).ok_or(Error::NotAFunction {
            name: format!("{id:?}"),
        })?;
        let mut reader = function.module.readers.reader()?;
        let shape = reader.measure(function.symbol)?;
        Ok(Facts {
            instructions: shape.instructions,
            loops: shape.loops,
            nested: shape.nested,
            entry_point: self.tiers.is_entry_point(id),
        })
    }

    /// The tier of a version of `id`.
    pub(crate) fn tier_of(&self, id: FunctionId, version: VersionId) -> Option<Tier> {
        let records = self.tiers.versions.lock();
        let mut built = records.get(&id.index())?.built.iter();
        built.find(|v| v.id == version).map(|v| v.tier)
    }

    pub(crate) fn tell_failed(&self, request: Request, cause: &Error) {
        self.events.tell(|| Event::Failed {
            id: request.function,
            function: self.name_of(request.function),
            tier: request.tier,
            message: cause.to_string(),
            at: self.events.now(),
        });
    }

    fn tell_dropped(&self, request: Request) {
        self.events.tell(|| Event::Dropped {
            id: request.function,
            function: self.name_of(request.function),
            version: request.version.0,
            at: self.events.now(),
        });
    }

    pub(crate) fn tell_lost(&self, message: &str) {
        self.events.tell(|| Event::WorkerLost {
            message: message.to_owned(),
            at: self.events.now(),
        });
    }

    /// The name people know a function by.
    pub(crate) fn name_of(&self, id: FunctionId) -> &'static str {
        self.function(id)
            .and_then(|function| function.name.to_str().ok())
            .unwrap_or("?")
    }
}

pub(crate) fn worker_name() -> String {
    std::thread::current().name().unwrap_or("caller").to_owned()
}

/// A step that the function's state refuses.
fn refused(cause: VersionError) -> Error {
    Error::Version {
        message: cause.to_string(),
        late: matches!(cause, VersionError::Late(_)),
    }
}
