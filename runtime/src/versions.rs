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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uruk_codegen::{Compile, Knowledge};
use uruk_session::Tracker;
use uruk_stubs::FunctionId;
use uruk_tiering::{
    Entry, Facts, FunctionVersions, Late, Publication, Purpose, Ticket, Tier, VersionError,
    VersionId, VersionIds,
};

use crate::core::Core;
use crate::error::Error;
use crate::event::Event;
use crate::guided::Words;
use crate::materialize::Built;

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
    _tracker: Option<Tracker>,
}

/// A function that has, or is getting, versions.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) versions: Arc<FunctionVersions>,
    /// Those that were compiled, oldest first.
    pub(crate) built: Vec<Version>,
}

/// All versions of a session, by function index.
#[derive(Default)]
pub(crate) struct Versions {
    pub(crate) ids: Arc<VersionIds>,
    records: Mutex<HashMap<u32, Record>>,
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

    /// What a compile may assume of callees out of sight. Tier 3 has it inferred, unless
    /// somebody waits for a first call; tier 2 takes what is known. Measured, the hottest
    /// 70 functions: 1.5 % (sqlite) and 5 % (Lua) more time to compile, 0.0 % and 0.35 %
    /// fewer instructions executed; with all functions at tier 2 the code gained nothing.
    fn knowledge(&self, request: &Request) -> Knowledge {
        let Some(function) = self.function(request.function) else {
            return Knowledge::Declared;
        };
        let facts = Arc::clone(&function.module.facts);
        let waited_for = request.purpose == Purpose::First && self.tiers.is_auto();
        match request.tier == Tier::Guided && !waited_for {
            true => Knowledge::Inferred(facts),
            false => Knowledge::Known(facts),
        }
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
            tier,
            ..
        } = request;
        versions.start(ticket).map_err(refused)?;
        let started = self.events.now();
        let how = how
            .knowing(self.knowledge(&request))
            .with_lines(self.tools.want_lines());
        let built = self.build_version(id, version.0, how)?;
        versions
            .ready(ticket, Entry(built.entry))
            .map_err(refused)?;
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
            .add_code(built.code.clone(), id, version);
        self.keep(request, built);
        made.publication = versions
            .publish(ticket, |entry| self.stubs.publish(id, entry.0))
            .map_err(refused)?;
        self.tell_publication(request, &made.publication);
        Ok(made)
    }

    /// Files a version that was compiled.
    fn keep(&self, request: Request, built: Built) {
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
            _tracker: built.tracker,
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
