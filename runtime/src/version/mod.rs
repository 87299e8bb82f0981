//! Making a version of a function: compiling, linking, publishing it.
//!
//! Who may store into a slot is decided by `uruk_tiering`'s [`FunctionVersions`], under
//! the lock of that function, inside which is only the slot. What a publication leaves
//! without use is retired.

pub(crate) mod blocks;
pub(crate) mod bodies;
pub(crate) mod calls;
pub(crate) mod constants;
pub(crate) mod cross;
pub(crate) mod drafts;
pub(crate) mod materialize;
pub(crate) mod rare;
pub(crate) mod records;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use uruk_codegen::{Cancellation, Compile, Knowledge, Labels};
use uruk_reclaim::Fixed;
use uruk_stubs::FunctionId;
use uruk_tiering::{
    Entry, Facts, FunctionVersions, Late, Publication, Purpose, Ticket, Tier, VersionError,
    VersionId,
};

use crate::api::error::Error;
use crate::core::{Body, Core};
use crate::fork::panics;
use crate::tiers::guided::Words;
use crate::told::event::Event;
use crate::version::blocks::Piece;
use crate::version::materialize::Built;
use crate::version::records::Version;

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

impl Core {
    /// Compiles a version, links it, and publishes it unless that is too late.
    ///
    /// # Errors
    /// The compile's own, and that it was cancelled; what was published before runs on.
    pub(crate) fn make(
        self: &Arc<Self>,
        request: Request,
        queued: Option<Duration>,
        cancel: &Cancellation,
    ) -> Result<Made, Error> {
        let mut how = self.tiers.how(request.tier);
        if request.tier == Tier::Guided {
            how = self.guide(request.function, how);
        }
        self.make_as(request, how, queued, cancel)
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
        cancel: &Cancellation,
    ) -> Result<Made, Error> {
        let versions = self.tiers.versions.of(request.function);
        if let Some(Body::Object(object)) = self.body(request.function) {
            self.tell_dropped(request);
            return Err(Error::Version {
                message: format!("{} comes from an object file", object.file.name),
                late: false,
            });
        }
        if request.purpose == Purpose::Change && self.tiers.versions.is_fixed(request.function) {
            self.tell_dropped(request);
            return Err(Error::Version {
                message: String::from(
                    "the function keeps its first version: addresses of its labels may be stored",
                ),
                late: true,
            });
        }
        let _entered = self.tiers.under_way.enter(request.version, cancel);
        let ticket = versions
            .request(request.version, request.tier, request.purpose)
            .map_err(refused)?;
        let how = how.cancelled_by(cancel);
        panics::caught(|| self.make_requested(request, how, &versions, ticket, queued)).inspect_err(
            |cause| {
                match cause.is_cancelled() {
                    true => versions.cancel(request.version),
                    false => versions.fail(request.version),
                };
                match cause {
                    cause if cause.is_cancelled() => self.tell_cancelled(request),
                    Error::Version { late: true, .. } => self.tell_dropped(request),
                    cause => {
                        // A listener may be what panics.
                        panics::contained(|| self.tell_failed(request, cause));
                    }
                }
            },
        )
    }

    /// What a compile may assume of callees out of sight. Tier 3 has it inferred, unless
    /// somebody waits for a first call; tier 2 takes what is known. Measured, the hottest
    /// 70 functions: 1.5 % (sqlite) and 5 % (Lua) more time to compile, 0.0 % and 0.35 %
    /// fewer instructions executed; with all functions at tier 2 the code gained nothing.
    fn knowledge(&self, request: &Request) -> Knowledge {
        let Some(function) = self.function(request.function) else {
            return Knowledge::Declared;
        };
        let facts = function.module.facts();
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
            ..
        } = request;
        versions.start(ticket).map_err(refused)?;
        let started = self.events.now();
        let epoch = self.replacing.epoch();
        let mut request = request;
        let lines = self.tools.want_lines();
        let cancel = how.cancel.clone();
        let how = how.knowing(self.knowledge(&request)).with_lines(lines);
        let how = match request.purpose {
            Purpose::Change if self.tiers.counts_at_baseline() => how.sparing(self.rare(id)),
            _ => how,
        };
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
                request.tier = best;
                let mut how = self.tiers.how(best);
                how.cancel = cancel;
                let how = how.knowing(self.knowledge(&request)).with_lines(lines);
                let first = std::mem::replace(&mut built, self.build_version(id, how)?);
                self.discard(id, first);
            }
        }
        if let Err(cause) = versions.ready(ticket, Entry(built.entry)) {
            self.discard(id, built);
            return Err(refused(cause));
        }
        let first = request.purpose == Purpose::First;
        self.counters.add_compile(first, &built);
        self.tell_compiled(request, &built, queued, started);
        let mut made = self.made(request, &built);
        let depends = self.depends(id, &built);
        self.file(request, built, Arc::clone(&depends));
        {
            // Nothing is replaced between this look and the store.
            let publishing = self.replacing.publish();
            let fresh = publishing.is_fresh(epoch, &depends);
            made.publication = versions
                .publish(ticket, |entry| fresh && self.stubs.publish(id, entry.0))
                .inspect_err(|_| self.retire_version(id, version))
                .map_err(refused)?;
            if !fresh && made.publication == Publication::Dropped(Late::Refused) {
                made.publication = Publication::Dropped(Late::Replaced);
            }
        }
        self.tell_publication(request, &made.publication);
        match &made.publication {
            Publication::Published { retired, released } => {
                if let Some(released) = released {
                    self.retire_version(id, *released);
                }
                if retired.is_some() {
                    self.reclaim.notes.superseded(id, version);
                    self.start_reclaim();
                }
            }
            Publication::Dropped(_) => self.retire_version(id, version),
            // Whoever replaces the function cancels it, or opens its way.
            _ => {}
        }
        Ok(made)
    }

    /// What there is to say of a version before it is published.
    pub(crate) fn made(&self, request: Request, built: &Built) -> Made {
        Made {
            version: request.version,
            entry: built.entry,
            compiling: built.compiling,
            linking: built.linking,
            facts: Facts {
                instructions: built.compiled.instructions,
                loops: built.compiled.loops,
                nested: built.compiled.nested,
                calls: built.compiled.calls,
                entry_point: self.tiers.is_entry_point(request.function),
            },
            counts: built.compiled.counts,
            words: built.words.clone(),
            publication: Publication::Dropped(Late::GivenUp),
        }
    }

    /// Files a version before it can run, so that the first sample in it, and whoever asks
    /// once it runs, finds it.
    pub(crate) fn file(&self, request: Request, built: Built, depends: Arc<[FunctionId]>) {
        let code = built.code.range();
        self.tiers
            .sampling
            .add_code(code, request.function, request.version);
        self.keep(request, built, depends);
    }

    pub(crate) fn tell_compiled(
        &self,
        request: Request,
        built: &Built,
        queued: Option<Duration>,
        started: Duration,
    ) {
        self.events.tell(|| Event::Compiled {
            id: request.function,
            function: self.name_of(request.function),
            version: request.version.0,
            tier: request.tier,
            worker: crate::fork::thread::name(),
            queued,
            started,
            compiling: built.compiling,
            linking: built.linking,
            instructions: built.compiled.instructions,
            bytes: built.bytes,
        });
    }

    /// Files a version that was compiled.
    fn keep(&self, request: Request, built: Built, depends: Arc<[FunctionId]>) {
        let fixed = match built.compiled.labels {
            Labels::Escape => Some(Fixed::Labels),
            _ => built.code.moves.is_none().then_some(Fixed::Referenced),
        };
        let code = built.code.range();
        let bodies = self.bodies_in_sight(request.function, &built);
        let (function, version) = (Some(request.function), request.version);
        self.reclaim.notes.live(Piece {
            function,
            version,
            depends: Arc::clone(&depends),
            fixed,
            code: built.code,
        });
        let mut records = self.tiers.versions.lock();
        let record = records.entry(request.function.index()).or_default();
        record.built.push(Version {
            id: request.version,
            tier: request.tier,
            entry: built.entry,
            body_end: built.body_end,
            code,
            bytes: built.bytes,
            time: built.compiling + built.linking,
            samples: 0,
            depends,
            bodies,
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
        let mut first = Request {
            function: id,
            version,
            tier,
            purpose: Purpose::First,
        };
        let made = loop {
            let made = self.make(first, None, &Cancellation::new());
            let outdated = match &made {
                Ok(made) => made.publication == Publication::Dropped(Late::Replaced),
                Err(Error::Version { late, .. }) => *late,
                Err(cause) => cause.is_cancelled(),
            };
            if !outdated || self.stubs.entry(id).is_some() || self.is_stopping() {
                break made;
            }
            // It was replaced meanwhile, or something it depends on.
            first.version = self.tiers.versions.ids.next();
        };
        match (made, self.stubs.entry(id)) {
            (Ok(made), entry) => {
                self.tiers.on_compiled(self.events.now(), id, tier, &made);
                Ok(entry.unwrap_or(made.entry))
            }
            // Whoever came first has published code; it will do.
            (Err(Error::Version { late: true, .. }), Some(entry)) => Ok(entry),
            (Err(cause), Some(entry)) if cause.is_cancelled() => Ok(entry),
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
            calls: shape.calls,
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

    fn tell_cancelled(&self, request: Request) {
        self.counters.cancelled.fetch_add(1, Ordering::Relaxed);
        self.events.tell(|| Event::Cancelled {
            id: request.function,
            function: self.name_of(request.function),
            version: request.version.0,
            tier: request.tier,
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
        self.body(id)
            .and_then(|body| body.name().to_str().ok())
            .unwrap_or("?")
    }
}

/// A step that the function's state refuses.
fn refused(cause: VersionError) -> Error {
    Error::Version {
        message: cause.to_string(),
        late: matches!(cause, VersionError::Late(_)),
    }
}
