//! A first call of a unit's function: its body is looked up, and published once it is ready.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::error;
use uruk_base::{FunctionId, Tier, VersionId};
use uruk_session::{Lookup, Visibility};
use uruk_tiering::{Facts, Late, Publication};

use crate::code::body::Body;
use crate::code::records::Version;
use crate::code::unit_body::UnitBody;
use crate::error::Error;
use crate::events::Event;
use crate::fork::gate;
use crate::session::Session;
use crate::version::request::Made;

/// Bytes of code that count as one instruction of a unit's own language, by which the policy
/// estimates the cost of better code.
const INSTRUCTION: u64 = 4;

/// Makes the unit of a function materialize its body now, on this thread, unless it has code.
pub(crate) fn compile_now(
    session: &Arc<Session>,
    id: FunctionId,
    body: &UnitBody,
) -> Result<(), Error> {
    let _pass = gate::enter();
    match session.stubs.entry(id) {
        Some(_) => Ok(()),
        None => session.materialize_body(id, body),
    }
}

impl Session {
    /// Answers a first call with a waiting caller, on another thread than this one: a unit may call
    /// the function that is answered here.
    pub(crate) fn answer_from_unit(self: &Arc<Self>, id: FunctionId, body: UnitBody) {
        let session = Arc::clone(self);
        let asked = body.clone();
        let started = self.hands.start(move || {
            let _pass = gate::enter();
            // These may be the last handles of the session: they are dropped before the pass.
            let (session, body) = (session, asked);
            if let Err(cause) = session.materialize_body(id, &body)
                && session.stubs.entry(id).is_none()
            {
                error!(function = session.name_of(id), %cause, "materialization failed");
                session.fail_body(id, &body, &cause);
            }
        });
        if let Err(cause) = started {
            error!(function = self.name_of(id), %cause, "no thread for a unit");
            self.fail_body(id, &body, &cause);
        }
    }

    /// Marks a function as failed whose body is not available, unless it was removed meanwhile. Then
    /// the removal told the waiting callers, and its stub may be another function's by now.
    fn fail_body(&self, id: FunctionId, body: &UnitBody, cause: &Error) {
        // A stub is handed out again only after its body was taken out of the table.
        self.with_body(id, |own| {
            if matches!(own, Some(Body::Unit(unit)) if unit.symbol == body.symbol) {
                self.fail(id, cause);
            }
        });
    }

    /// Looks a body up and publishes it. Under a pass.
    fn materialize_body(self: &Arc<Self>, id: FunctionId, body: &UnitBody) -> Result<(), Error> {
        let started = Instant::now();
        let lookup = Lookup::new([(body.dylib.clone(), Visibility::All)]).symbol(body.symbol);
        let found = self.names.session().lookup(lookup)?;
        // A required symbol without an address was an error.
        let Some(address) = found.address(body.symbol) else {
            return Ok(());
        };
        if self.stubs.entry(id).is_some() || self.publish_fixed(id, body) {
            return Ok(());
        }
        match self.publish_unit(id, body, address, started) {
            // Another thread has published code first; that is used.
            Err(Error::Version { cause, .. })
                if cause.is_late() && self.stubs.entry(id).is_some() =>
            {
                Ok(())
            }
            published => published,
        }
    }

    /// Publishes the code that a unit made for its function's first call.
    fn publish_unit(
        self: &Arc<Self>,
        id: FunctionId,
        body: &UnitBody,
        entry: u64,
        started: Instant,
    ) -> Result<(), Error> {
        let version = self.versions.ids.next();
        // Another thread may be here for the same function: the code stays in the table until one
        // has published it.
        let code = self.linked_code(id);
        let range = code
            .as_ref()
            .map_or(entry..entry, |code| code.range.clone());
        let made = made(version, &range, started.elapsed());
        self.file_unit(id, &made, range.clone());
        let is_ours = code.is_some();
        if let Some(code) = code {
            self.objects.file(version, id, code);
        }
        // The body stays its unit's: the removal finds the name by which it comes back.
        let publication = self.publish_first(id, version, entry);
        if !matches!(publication, Ok(Publication::Published { .. })) {
            self.retire_version(id, version);
            return publication.map(drop);
        }
        drop(self.take_linked(id));
        if is_ours {
            self.sampled.insert(range, id, version);
        }
        let at = self.events.now();
        if body.improver.is_some() && self.choices.is_auto() {
            // The time of other compilers says nothing about this session's compiles.
            let compiling = Duration::ZERO;
            let made = Made { compiling, ..made };
            self.tiers.on_compiled(at, id, Tier::Baseline, &made);
        }
        self.events.tell(|| Event::Published {
            id,
            function: self.name_of(id),
            version: version.0,
            tier: Tier::Baseline,
            replaced: None,
            at,
        });
        Ok(())
    }

    /// Files a unit's own code before it can run. Its memory belongs to its object, or to the unit.
    fn file_unit(&self, id: FunctionId, made: &Made, code: Range<u64>) {
        let mut records = self.versions.lock();
        let record = records.entry(id.index()).or_default();
        record.built.push(Version {
            id: made.version,
            tier: Tier::Baseline,
            entry: code.start,
            body_end: code.end,
            bytes: code.end - code.start,
            code,
            time: made.compiling,
            samples: 0,
            depends: Arc::default(),
            bodies: Arc::default(),
            unit: None,
            escapes: false,
            object: None,
        });
    }
}

/// The facts about a unit's own code.
fn made(version: VersionId, code: &Range<u64>, compiling: Duration) -> Made {
    let size = code.end - code.start;
    Made {
        version,
        compiling,
        linking: Duration::ZERO,
        facts: Facts {
            instructions: u32::try_from(size / INSTRUCTION).unwrap_or(u32::MAX),
            ..Facts::default()
        },
        counts: false,
        callees: 0,
        object: None,
        words: None,
        publication: Publication::Dropped(Late::GivenUp),
    }
}
